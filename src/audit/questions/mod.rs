//! What a run's tables cannot tell alone: sections of the audit for which the model is asked about some of the rows,
//! chosen by their keys, within a number of questions that the job allows.

mod actions;
mod ask;
mod binding;
mod budget;
mod candidates;
mod counted;
mod explicit;
mod groups;
mod lifts;
mod reservoir;
mod responsiveness;
mod robustness;
mod sample;
mod sampler;
mod search;
mod second_search;
mod values;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;

use super::reasons::{self, Reasons};
use crate::error::Result;
use crate::explain::Explainer;
use crate::feature::FeatureSchema;
use crate::job::{AuditJob, Section};
use crate::predictor::Predictor;

pub(super) use ask::{Copy, CopyPrediction, DerivedPolicy, as_they_are, ask};
use budget::{Allotment, SectionNeed, share};
use counted::CountedPredictor;
pub use groups::QuestionNames;
pub(super) use groups::mean;
pub(super) use sample::{AuditSample, Chosen, SampledGroup};
use sampler::GROUP_ROWS;
pub(super) use sampler::REFERENCE_ROWS as REFERENCES;
pub use sampler::{SampleSetup, SampleSizes, Sampler};
pub use search::ExplainerSetup;
use search::Variation;
pub use second_search::{GatedGaps, doubted, gated};

/// Refused rows that are kept, at most.
const MOST_REFUSED: usize = 200_000;

/// A table by its name.
pub type NamedTable = (&'static str, RecordBatch);

/// What is to be asked, and whom.
pub struct Questions<'a> {
    /// The audit's part of the job.
    pub job: &'a AuditJob,
    /// How rows are explained.
    pub setup: ExplainerSetup<'a>,
    /// What targets and attributes are called.
    pub names: QuestionNames,
    /// The model.
    pub predictor: Arc<dyn Predictor>,
}

/// What came of the questions.
#[derive(Debug, Default)]
pub struct QuestionResults {
    /// Tables of the audit.
    pub tables: Vec<NamedTable>,
    /// Candidate reasons by row, if they were asked for.
    pub reasons: Option<RecordBatch>,
    /// Times that the model was asked.
    pub asked: u64,
    /// What was smaller than it would have been with more questions, in words.
    pub remarks: Vec<String>,
}

/// What sections ask with.
pub(super) struct Asker<'a> {
    pub(super) setup: &'a ExplainerSetup<'a>,
    /// It explains as the run did.
    pub(super) explainer: Arc<Explainer>,
    pub(super) table: &'a Schema,
    pub(super) names: &'a QuestionNames,
    predictor: Arc<CountedPredictor>,
    /// Rows that were searched again for the section, where it does that.
    searched: Cell<Option<u64>>,
    tolerance: f64,
    /// By attribute what groups are compared with, where the job says.
    reference: &'a BTreeMap<String, String>,
    /// Rows by target, attribute and value.
    sizes: BTreeMap<(u32, usize, Option<String>), u64>,
}

/// Rows for the sections that ask.
struct QuestionRows {
    refused: Chosen,
    valid: Chosen,
    stuck: Chosen,
    any: Chosen,
    grouped: Chosen,
    /// Rows of a group among them, at most.
    group_limit: usize,
    passing: BTreeMap<u32, Chosen>,
}

/// How many rows of each kind the sections of a job may ask about.
pub fn sizes(job: &AuditJob) -> SampleSizes {
    let when = |section: Section, rows: usize| if job.has(section) { rows } else { 0 };
    // More rows than there are questions cannot be asked about.
    let affordable = |rows: usize| rows.min(usize::try_from(job.queries).unwrap_or(usize::MAX));
    let several = if job.reasons || job.has(Section::Actions) { MOST_REFUSED } else { 0 };
    let few = when(Section::Responsiveness, responsiveness::ROWS)
        // Of refused rows some have no counterfactual.
        .max(when(Section::Robustness, 4 * robustness::ROWS));
    SampleSizes {
        refused: affordable(several.max(few)),
        stuck: affordable(when(Section::Binding, binding::ROWS)),
        any: affordable(when(Section::Explicit, explicit::ROWS)),
        group: affordable(when(Section::SecondSearch, GROUP_ROWS)),
        passing: if job.reasons { REFERENCES } else { 0 },
    }
}

/// The protected features of a job: those that it names, or attributes that are features.
pub fn protected(job: &AuditJob, schema: &FeatureSchema) -> Vec<usize> {
    let names = job.protected.as_ref().unwrap_or(&job.by);
    let index = |name: &String| schema.features.iter().position(|feature| feature.name == *name);
    names.iter().filter_map(index).collect()
}

impl Questions<'_> {
    /// Asks everything that the job wants to know about the rows of a sampler.
    ///
    /// # Errors
    /// When the model as a whole fails.
    pub fn ask(&self, sampler: Sampler) -> Result<QuestionResults> {
        let predictor = Arc::new(CountedPredictor::new(Arc::clone(&self.predictor)));
        let unchanged = self.setup.unchanged();
        let counted: Arc<dyn Predictor> = Arc::clone(&predictor) as Arc<dyn Predictor>;
        let asker = Asker {
            explainer: self.setup.explainer(&unchanged, counted)?,
            setup: &self.setup,
            table: &self.setup.table,
            names: &self.names,
            predictor,
            searched: Cell::new(None),
            tolerance: self.job.tolerance,
            reference: &self.job.reference,
            sizes: sampler.group_sizes().clone(),
        };
        let all_refused = sampler.rows_refused;
        let rows = QuestionRows::new(sampler)?;
        let needs = self.needs(&asker, &rows);
        let mut results = QuestionResults::default();
        let held = rows.refused.len() as u64;
        if self.job.reasons && held < all_refused {
            results.remarks.push(format!(
                "candidate reasons are told of {held} of {all_refused} rows that need another decision: \
                 no more are held in memory, or asked about with `audit.queries`"
            ));
        }
        tracing::info!("the audit asks the model at most {} times", self.job.queries);
        let allotments = share(&needs, self.job.queries);
        allotments.iter().for_each(|allotted| tracing::info!("the audit: {}", allotted.said()));
        for first in 0..needs.len() {
            // What earlier sections have left over is for the later ones.
            let left = self.job.queries.saturating_sub(asker.predictor.asked());
            let allotted = share(&needs[first..], left).swap_remove(0);
            self.write_section(&asker, (&rows, &allotted), &mut results)?;
        }
        results.asked = asker.predictor.asked();
        Ok(results)
    }

    /// Asks what a section asks, and says what came of it.
    fn write_section(
        &self,
        asker: &Asker<'_>,
        (rows, allotted): (&QuestionRows, &Allotment),
        results: &mut QuestionResults,
    ) -> Result<()> {
        let SectionNeed { section, rows: needed, .. } = allotted.need;
        let before = asker.predictor.asked();
        asker.searched.set(None);
        self.write(asker, rows, (allotted, results))?;
        let asked = asker.predictor.asked() - before;
        let looked_at = asker.searched.get().unwrap_or(allotted.rows());
        tracing::info!(
            "the audit: `{section}` has asked {asked} times about {looked_at} of {needed} rows"
        );
        if looked_at < needed {
            results.remarks.push(format!(
                "the audit: `{section}` tells of {looked_at} of {needed} rows: `audit.queries` allows no more"
            ));
        }
        Ok(())
    }

    /// What every section would ask.
    fn needs(&self, asker: &Asker<'_>, rows: &QuestionRows) -> Vec<SectionNeed> {
        let (schema, stats) = (&self.setup.schema, &self.setup.artefact.description.stats);
        let features = schema.features.len();
        let targets = asker.targets_per_row();
        let at_most = |chosen: &Chosen, most: usize| chosen.len().min(most) as u64;
        let section = |section: Section| match section {
            Section::Actions => (at_most(&rows.refused, actions::CHOSEN_ON), actions::PER_ROW),
            Section::Binding => {
                (at_most(&rows.stuck, binding::ROWS), targets * binding::per_row(asker))
            }
            Section::Responsiveness => {
                (at_most(&rows.refused, responsiveness::ROWS), responsiveness::per_row(features))
            }
            Section::Robustness => (at_most(&rows.valid, robustness::ROWS), robustness::per_row()),
            Section::Explicit => {
                let protected = protected(self.job, schema);
                (at_most(&rows.any, explicit::ROWS), explicit::per_row((schema, stats), &protected))
            }
            _ => (rows.grouped.len() as u64, targets * second_search::per_row(asker)),
        };
        let asking = self.job.sections.iter().filter(|section| section.asks());
        let need = |of: &Section| {
            let (rows_of, per_row) = section(*of);
            let further = rows.refused.len() as u64 - at_most(&rows.refused, actions::CHOSEN_ON);
            let actions = *of == Section::Actions;
            let more = if actions { further * actions::PER_FURTHER_ROW } else { 0 };
            SectionNeed { section: of.name(), rows: rows_of, per_row, before: 0, more }
        };
        let mut needs: Vec<SectionNeed> = asking.map(need).collect();
        if self.job.reasons {
            let before = rows.passing.values().map(|of| of.len() as u64).sum();
            let (held, per_row) = (rows.refused.len() as u64, reasons::per_row(features));
            needs.push(SectionNeed {
                section: reasons::NAME,
                rows: held,
                per_row,
                before,
                more: 0,
            });
        }
        needs
    }

    fn write(
        &self,
        asker: &Asker<'_>,
        rows: &QuestionRows,
        (allotted, results): (&Allotment, &mut QuestionResults),
    ) -> Result<()> {
        let tables = match allotted.need.section {
            "actions" => actions::actions(asker, &rows.refused, allotted)?,
            "binding" => binding::binding(asker, &rows.stuck, allotted)?,
            "responsiveness" => responsiveness::responsiveness(asker, &rows.refused, allotted)?,
            "robustness" => robustness::robustness(asker, &rows.valid, allotted)?,
            "explicit" => {
                let protected = protected(self.job, &self.setup.schema);
                explicit::explicit(asker, (&rows.any, &protected), allotted)?
            }
            "second_search" => {
                let grouped = (&rows.grouped, rows.group_limit);
                second_search::second_search(asker, grouped, allotted)?
            }
            _ => {
                let some = rows.refused.slice(0, allotted.rows() as usize);
                let Reasons { reasons, counts } = reasons::reasons(asker, (&some, &rows.passing))?;
                results.reasons = Some(reasons);
                vec![("reason_counts", counts)]
            }
        };
        results.tables.extend(tables);
        Ok(())
    }
}

impl QuestionRows {
    fn new(mut sampler: Sampler) -> Result<QuestionRows> {
        let group_limit = sampler.group_limit();
        let grouped = Chosen::new(sampler.grouped()?);
        let Sampler { refused, stuck, any, passing, .. } = sampler;
        let refused = Chosen::new(refused.finish()?);
        let passing =
            passing.into_iter().map(|(target, of)| Ok((target, Chosen::new(of.finish()?))));
        Ok(QuestionRows {
            valid: refused.valid()?,
            stuck: Chosen::new(stuck.finish()?),
            any: Chosen::new(any.finish()?),
            passing: passing.collect::<Result<_>>()?,
            refused,
            grouped,
            group_limit,
        })
    }
}

impl Asker<'_> {
    /// An explainer that differs from the run's.
    ///
    /// # Errors
    /// As [`Explainer::new`].
    fn explainer_of(&self, variation: &Variation) -> Result<Arc<Explainer>> {
        self.setup.explainer(variation, Arc::clone(&self.predictor) as Arc<dyn Predictor>)
    }

    /// Targets that a row has, at most.
    fn targets_per_row(&self) -> u64 {
        let every = matches!(self.setup.target, crate::job::Target::Every);
        if every { self.names.targets.len().max(2) as u64 - 1 } else { 1 }
    }

    /// Rows of a section piece by piece, as long as its questions are enough for whatever the next piece may cost.
    fn chunks<'c>(
        &'c self,
        rows: &'c Chosen,
        (allotted, most): (&'c Allotment, usize),
    ) -> impl Iterator<Item = Result<Chosen>> + 'c {
        let began = self.predictor.asked();
        self.searched.set(Some(0));
        let mut first = 0;
        std::iter::from_fn(move || {
            let left = allotted.questions.saturating_sub(self.predictor.asked() - began);
            let affordable = left / allotted.need.per_row.max(1);
            let needed = (allotted.need.rows as usize).min(rows.len()).saturating_sub(first);
            let next = needed.min(most).min(affordable as usize);
            if next == 0 {
                return None;
            }
            let chunk = rows.slice(first, next);
            first += next;
            self.searched.set(Some(first as u64));
            Some(crate::stop::check().map(|()| chunk))
        })
    }

    /// What a group is compared with: the value that the job names, or the largest group.
    fn reference<'g>(
        &self,
        group: &SampledGroup,
        groups: &'g [SampledGroup],
    ) -> Option<&'g SampledGroup> {
        let attribute = group.attribute?;
        let named = self.reference.get(&self.names.attributes[attribute]).map(Some);
        let of_attribute = |(target, other, _): &&(u32, usize, Option<String>)| {
            (*target, *other) == (group.target, attribute)
        };
        let largest = || {
            let sizes = self.sizes.iter().filter(|(key, _)| of_attribute(key));
            // As in other sections: of equally large ones the first by name, the nulls last.
            let order = |((_, _, value), rows): &(&(u32, usize, Option<String>), &u64)| {
                (std::cmp::Reverse(**rows), value.is_none(), value.clone())
            };
            let largest = sizes.min_by_key(order);
            largest.map(|((_, _, value), _)| value.as_ref())
        };
        let value = named.or_else(largest)?;
        let same = |other: &&SampledGroup| {
            (other.target, other.attribute, other.value.as_ref())
                == (group.target, group.attribute, value)
        };
        groups.iter().find(same)
    }
}
