//! The table `changes`: which changes are commonest, and in which groups they are commoner than in others.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Builder, ListArray, RecordBatch, StringBuilder, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use hashbrown::HashSet;

use super::cells::GroupCounts;
use super::signatures::{Move, MoveWay, Signature, SignatureTally, Signatures};
use super::{AuditSetup, GroupLevel, levels};
use crate::error::{Error, Result};
use crate::feature::FeatureSchema;
use crate::metrics::{Contrast, Share, compare_shares};
use crate::output::{audit_change_fields, audit_changes_schema};
use crate::report::ReportColumns;

/// Signatures told of everybody …
const OF_ALL: usize = 1_000;
/// … those of them told of every group …
const OF_GROUPS: usize = 100;
/// … and how many of its own commonest ones besides.
const OF_GROUP: usize = 20;
/// The column that is a list.
const LIST: &str = "changes";

/// A signature of a target with its rank.
struct Ranked<'a> {
    signature: &'a Signature,
    entry: &'a SignatureTally,
    text: String,
}

/// Cells of the table, and its list.
struct ChangesTable<'a> {
    columns: ReportColumns,
    changes: ChangeLists<'a>,
}

/// What a group has of a signature.
struct SignatureRows {
    rows: u64,
    cumulative: u64,
}

/// A row for everybody's commonest signatures, and for each group's.
///
/// # Errors
/// Only if there is a bug.
pub fn changes(
    setup: &AuditSetup<'_>,
    counts: &GroupCounts,
    schema: &FeatureSchema,
) -> Result<RecordBatch> {
    let mut rows =
        ChangesTable { columns: ReportColumns::default(), changes: ChangeLists::new(schema) };
    let none = Signatures::default();
    let mut ranked: (Option<u32>, Vec<Ranked<'_>>) = (None, Vec::new());
    for level in levels(counts) {
        let signatures = counts.signatures.get(&level.target).unwrap_or(&none);
        if ranked.0 != Some(level.target) {
            ranked = (Some(level.target), in_words(signatures, schema));
        }
        let everybody = counts.cells[&level.target][0][0].sums.valid;
        let context = GroupContext { setup, counts, level, missed: signatures.missed, everybody };
        context.write(&ranked.1, &mut rows);
    }
    rows.finish()
}

fn in_words<'a>(signatures: &'a Signatures, schema: &FeatureSchema) -> Vec<Ranked<'a>> {
    let ranked = signatures.ranked().into_iter();
    let words = |(signature, entry): (&'a Signature, &'a SignatureTally)| {
        let parts: Vec<String> = signature.iter().map(|of| of.text(schema)).collect();
        Ranked { signature, entry, text: parts.join(", ") }
    };
    ranked.map(words).collect()
}

/// What is told of one group.
struct GroupContext<'a> {
    setup: &'a AuditSetup<'a>,
    counts: &'a GroupCounts,
    level: GroupLevel<'a>,
    missed: u64,
    /// Valid counterfactuals of the target.
    everybody: u64,
}

impl GroupContext<'_> {
    fn write(&self, ranked: &[Ranked<'_>], rows: &mut ChangesTable<'_>) {
        let mut cumulative = 0;
        let of_group = |ranked: &Ranked<'_>| {
            let rows = self.rows_of(ranked);
            cumulative += rows;
            SignatureRows { rows, cumulative }
        };
        let found: Vec<SignatureRows> = ranked.iter().map(of_group).collect();
        let mut listed = 0;
        for rank in self.ranks(&found) {
            listed += found[rank].rows;
            self.row(&ranked[rank], (rank, &found[rank]), rows);
        }
        let others = self.level.cell.sums.valid - listed;
        if others > 0 {
            self.others(others, rows);
        }
    }

    fn is_everybody(&self) -> bool {
        self.level.attribute == 0
    }

    fn rows_of(&self, ranked: &Ranked<'_>) -> u64 {
        if self.is_everybody() {
            return ranked.entry.rows;
        }
        let group = (self.level.attribute as u32, self.level.value as u32);
        ranked.entry.groups.get(&group).copied().unwrap_or(0)
    }

    /// Ranks of the signatures that are told.
    fn ranks(&self, found: &[SignatureRows]) -> Vec<usize> {
        if self.is_everybody() {
            return (0..found.len().min(OF_ALL)).collect();
        }
        let mut ranks_of_group: Vec<usize> =
            (0..found.len()).filter(|rank| found[*rank].rows > 0).collect();
        ranks_of_group.sort_by_key(|rank| std::cmp::Reverse(found[*rank].rows));
        ranks_of_group.truncate(OF_GROUP);
        let common = 0..found.len().min(OF_GROUPS);
        let ranks: HashSet<usize> = common.chain(ranks_of_group).collect();
        let mut ranks: Vec<usize> = ranks.into_iter().collect();
        ranks.sort_unstable();
        ranks
    }

    fn row(
        &self,
        ranked: &Ranked<'_>,
        (rank, found): (usize, &SignatureRows),
        rows: &mut ChangesTable<'_>,
    ) {
        let valid = self.level.cell.sums.valid;
        let rest = Share {
            part: ranked.entry.rows.saturating_sub(found.rows),
            whole: self.everybody - valid,
        };
        let share_of_group = Share { part: found.rows, whole: valid };
        let apart = if self.is_everybody() { None } else { compare_shares(share_of_group, rest) };
        let columns = &mut rows.columns;
        self.setup.begin(columns, &self.level, self.counts);
        columns.maybe_count(Some(rank as u64 + 1));
        columns.text(Some(&ranked.text));
        self.figures(columns, share_of_group, (Some(found.cumulative), apart));
        rows.changes.add(ranked);
    }

    /// The row of all signatures that are not told.
    fn others(&self, others: u64, rows: &mut ChangesTable<'_>) {
        let columns = &mut rows.columns;
        self.setup.begin(columns, &self.level, self.counts);
        columns.maybe_count(None);
        columns.text(None);
        let share_of_group = Share { part: others, whole: self.level.cell.sums.valid };
        self.figures(columns, share_of_group, (None, None));
        rows.changes.end();
    }

    fn figures(
        &self,
        columns: &mut ReportColumns,
        share_of_group: Share,
        more: (Option<u64>, Option<Contrast>),
    ) {
        let suppressed = self.setup.suppresses(self.level.cell);
        let (cumulative, apart) = more;
        let cumulative = cumulative.and_then(|part| Share { part, ..share_of_group }.value());
        let shown = |number: Option<f64>| number.filter(|_| !suppressed);
        let interval = apart.and_then(|apart| apart.interval);
        columns.count(share_of_group.whole);
        columns.maybe_count((!suppressed).then_some(share_of_group.part));
        columns.number(shown(share_of_group.value()));
        columns.number(shown(cumulative));
        columns.number(shown(apart.map(|apart| apart.difference)));
        columns.number(shown(interval.map(|of| of.low)));
        columns.number(shown(interval.map(|of| of.high)));
        columns.count(self.missed);
        columns.flag(Some(suppressed));
    }
}

impl Move {
    /// Feature, way, and category.
    fn parts<'a>(&self, schema: &'a FeatureSchema) -> (&'a str, &'static str, Option<&'a str>) {
        let feature = &schema.features[self.feature as usize];
        let value = |code: u32| {
            let values = &feature.categorical()?.values;
            values.get(code as usize).map(String::as_str)
        };
        match self.way {
            MoveWay::Up => (&feature.name, "up", None),
            MoveWay::Down => (&feature.name, "down", None),
            MoveWay::To(code) => (&feature.name, "to", value(code)),
        }
    }

    fn text(&self, schema: &FeatureSchema) -> String {
        let (feature, way, value) = self.parts(schema);
        let known = value.map(|value| format!(" {value}")).unwrap_or_default();
        format!("{feature} {way}{known}")
    }
}

/// The column `changes`.
struct ChangeLists<'a> {
    schema: &'a FeatureSchema,
    texts: [StringBuilder; 3],
    sizes: [Float64Builder; 3],
    ends: Vec<i32>,
    count: i32,
}

impl<'a> ChangeLists<'a> {
    fn new(schema: &'a FeatureSchema) -> ChangeLists<'a> {
        let (texts, sizes) = (Default::default(), Default::default());
        ChangeLists { schema, texts, sizes, ends: vec![0], count: 0 }
    }

    fn add(&mut self, ranked: &Ranked<'_>) {
        for (of, sizes) in ranked.signature.iter().zip(&ranked.entry.sizes) {
            let (feature, way, value) = of.parts(self.schema);
            let texts = [Some(feature), Some(way), value];
            self.texts.iter_mut().zip(texts).for_each(|(texts, text)| texts.append_option(text));
            let quantiles = [0.5, 0.75, 0.9].map(|share| sizes.quantile(share));
            let columns = self.sizes.iter_mut().zip(quantiles);
            columns.for_each(|(sizes, size)| sizes.append_option(size));
            self.count += 1;
        }
        self.end();
    }

    fn end(&mut self) {
        self.ends.push(self.count);
    }

    fn finish(mut self, field: &Field) -> Result<ArrayRef> {
        let DataType::List(item) = field.data_type() else {
            return Err(Error::internal("changes", "is no list"));
        };
        let texts = self.texts.iter_mut().map(|texts| Arc::new(texts.finish()) as ArrayRef);
        let sizes = self.sizes.iter_mut().map(|sizes| Arc::new(sizes.finish()) as ArrayRef);
        let parts = StructArray::try_new(audit_change_fields(), texts.chain(sizes).collect(), None);
        let ends = OffsetBuffer::new(self.ends.into());
        let lists = parts
            .and_then(|parts| ListArray::try_new(Arc::clone(item), ends, Arc::new(parts), None));
        let lists =
            lists.map_err(|error| Error::internal("changes", "do not fit").source(error))?;
        Ok(Arc::new(lists))
    }
}

impl ChangesTable<'_> {
    /// The table: the list is put among the other columns.
    fn finish(self) -> Result<RecordBatch> {
        let misfit = |error| Error::internal("changes", "columns do not fit").source(error);
        let schema = audit_changes_schema();
        let index = schema.index_of(LIST).map_err(misfit)?;
        let mut fields = schema.fields().to_vec();
        let field = fields.remove(index);
        let others = self.columns.finish(Arc::new(Schema::new(fields)))?;
        let mut columns = others.columns().to_vec();
        columns.insert(index, self.changes.finish(&field)?);
        RecordBatch::try_new(schema, columns).map_err(misfit)
    }
}
