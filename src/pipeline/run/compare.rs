//! A run of several methods: the figures of each, and where they agree.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;

use super::Stages;
use super::figures::{Figures, MethodFigures};
use super::publish::queries_per_row;
use super::summary::{AgreementSummary, MethodSummary};
use crate::artefact::Artefact;
use crate::error::{Error, Result};
use crate::job::ExplainMethod;
use crate::metrics::AgreementCounts;
use crate::report::{
    Names, agreement, coverage, features, mmd_table, plausibility, robust, sparsity, validity,
};

/// What the methods of a run come to.
pub(super) struct Compared {
    /// Those beside the published one, in their order.
    pub(super) others: Vec<(ExplainMethod, MethodFigures)>,
    /// Where all of them agree.
    pub(super) agreement: AgreementCounts,
}

impl Stages<'_> {
    /// The methods of the run, the published one first.
    pub(super) fn methods(&self, artefact: &Artefact) -> Vec<ExplainMethod> {
        self.job.explain.methods(artefact.description.learnt)
    }

    /// The figures of the reports, of one method after the other.
    pub(super) fn reports(
        &self,
        figures: &Figures,
        names: &Names,
    ) -> Result<Vec<(String, RecordBatch)>> {
        let rejected = figures.rejected();
        let mut tables = self.reports_of(&figures.published, rejected, names)?;
        let Some(compared) = &figures.compared else { return Ok(tables) };
        for (method, figures) in &compared.others {
            let names = Names { method: method.name(), ..names.clone() };
            let more = self.reports_of(figures, rejected, &names)?;
            for ((_, table), (_, more)) in tables.iter_mut().zip(more) {
                let lost =
                    |error| Error::internal("reports", "tables do not go together").source(error);
                *table = concat_batches(&table.schema(), [&*table, &more]).map_err(lost)?;
            }
        }
        let methods = compared.methods(names);
        tables.push(("agreement".to_string(), agreement(&compared.agreement, &methods, names)?));
        Ok(tables)
    }

    fn reports_of(
        &self,
        figures: &MethodFigures,
        rejected: u64,
        names: &Names,
    ) -> Result<Vec<(String, RecordBatch)>> {
        let (tally, space) = (&figures.tally, self.job.report.mmd.space.name());
        let tables = [
            ("coverage", coverage(tally, names, rejected)?),
            ("validity", validity(tally, names)?),
            ("sparsity", sparsity(tally, names)?),
            ("plausibility", plausibility(tally, names)?),
            ("features", features(tally, names)?),
            ("mmd", mmd_table(&figures.mmd, names, space)?),
        ];
        let mut tables: Vec<(String, RecordBatch)> =
            tables.map(|(name, table)| (name.to_string(), table)).into();
        if let Some(asked) = self.robust() {
            tables.push(("robust".to_string(), robust(tally, names, asked)?));
        }
        Ok(tables)
    }
}

impl Compared {
    /// Names of all methods.
    fn methods(&self, names: &Names) -> Vec<&'static str> {
        let others = self.others.iter().map(|(method, _)| method.name());
        std::iter::once(names.method).chain(others).collect()
    }

    /// Refuses tables in which not every method has explained every row.
    pub(super) fn account(&self, explained: u64) -> Result<()> {
        match self.others.iter().find(|(_, figures)| figures.tally.rows != explained) {
            None => Ok(()),
            Some((method, figures)) => {
                let problem = format!(
                    "`{}` has explained {} rows, expected {explained}",
                    method.name(),
                    figures.tally.rows
                );
                Err(Error::internal("accounting", problem))
            }
        }
    }
}

/// A line for each method; none where there is one only.
pub(super) fn methods_summary(figures: &Figures, names: &Names) -> Vec<MethodSummary> {
    let Some(compared) = &figures.compared else { return Vec::new() };
    let others = compared.others.iter().map(|(method, figures)| (method.name(), figures));
    let all = std::iter::once((names.method, &figures.published)).chain(others);
    let line = |(method, figures): (&'static str, &MethodFigures)| {
        let total = figures.tally.total();
        let (needed, valid) = (total.needed(), total.solved());
        MethodSummary {
            method: method.to_string(),
            needed,
            valid,
            validity: (needed > 0).then(|| valid as f64 / needed as f64),
            l0: total.valid.l0.mean(),
            l1: total.valid.l1.mean(),
            n_changed: total.valid.changed.mean(),
            plausibility: total.plausibility.quantile(0.5),
            queries_per_row: queries_per_row(&total),
        }
    };
    all.map(line).collect()
}

/// A line for each pair of methods.
pub(super) fn agreement_summary(figures: &Figures, names: &Names) -> Vec<AgreementSummary> {
    let Some(compared) = &figures.compared else { return Vec::new() };
    let (methods, counts) = (compared.methods(names), &compared.agreement);
    let line =
        |((first, other), found): ((usize, usize), crate::metrics::PairCounts)| AgreementSummary {
            method: methods[first].to_string(),
            other: methods[other].to_string(),
            both: found.both,
            same_features: found.same_features,
            same_directions: found.same_directions,
        };
    counts.pairs().into_iter().zip(counts.total()).map(line).collect()
}
