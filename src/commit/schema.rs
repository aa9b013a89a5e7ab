//! Whether a run's rows suit a table that exists, and what the table must learn of them first.

use arrow::datatypes::{DataType, Schema, SchemaRef};
use deltalake_core::kernel::engine::arrow_conversion::{TryIntoArrow, TryIntoKernel};
use deltalake_core::kernel::transaction::PROTOCOL;
use deltalake_core::kernel::{EagerSnapshot, Metadata, MetadataExt, StructType};

use super::TableRun;
use super::columns::same_type;
use crate::error::{Error, Fault, Kind, Result};
use crate::feature::type_name;
use crate::job::SchemaMode;
use crate::table::{trouble, unsupported};

/// The columns of a table as its log describes them.
pub(super) fn described(schema: &Schema) -> Result<StructType> {
    schema
        .try_into_kernel()
        .map_err(|error| Error::internal("output.table", "has no schema in Delta").source(error))
}

/// What the table's metadata become by the run, where they change.
///
/// # Errors
/// All in which the run and the table disagree.
pub(super) fn changes(
    run: &TableRun<'_>,
    schema: &SchemaRef,
    snapshot: &EagerSnapshot,
) -> Result<Option<Metadata>> {
    let url = &run.target.url;
    refuse_protocol(url, snapshot)?;
    let broken = |error| Error::output(url, "has columns that have no Arrow type").source(error);
    let table: Schema = snapshot.schema().as_ref().try_into_arrow().map_err(broken)?;
    let mut faults = partition_fault(run, snapshot);
    let (type_faults, added) = compare(url, schema, &table);
    faults.extend(type_faults);
    let missing =
        table.fields().iter().filter(|field| schema.column_with_name(field.name()).is_none());
    for field in missing {
        let merges = run.target.schema == SchemaMode::Merge;
        if merges && field.is_nullable() {
            continue;
        }
        let problem = format!("has the column `{}`, which the run does not have", field.name());
        faults.push(if merges {
            Fault::new(url, format!("{problem} and which may not be null"))
                .hint("drop its `NOT NULL`, or choose another `output.table.url`")
        } else {
            Fault::new(url, problem).hint(MERGE)
        });
    }
    if run.target.schema == SchemaMode::Strict {
        let fault = |name: &&str| {
            Fault::new(url, format!("has no column `{name}`, which the run has")).hint(MERGE)
        };
        faults.extend(added.iter().map(fault));
    }
    Error::from_faults(Kind::Spec, faults)?;
    if added.is_empty() {
        return Ok(None);
    }
    with_columns(snapshot, schema, &added).map(Some)
}

/// The way out of a strict schema.
const MERGE: &str = "set `output.table.schema = \"merge\"` to let tables and runs differ, or choose another \
                     `output.table.url`";

fn refuse_protocol(url: &str, snapshot: &EagerSnapshot) -> Result<()> {
    let what = unsupported(snapshot.protocol(), snapshot.metadata());
    let what =
        what.or_else(|| PROTOCOL.can_write_to(snapshot).err().map(|error| trouble(&error.into())));
    let what = what.or_else(|| invariant(snapshot));
    match what {
        None => Ok(()),
        Some(what) => Err(Error::spec(url, format!("cannot be written: it has {what}"))
            .hint("choose another `output.table.url`, or drop the feature from the table")),
    }
}

/// Conditions on rows are not evaluated by us, and must not be broken.
fn invariant(snapshot: &EagerSnapshot) -> Option<String> {
    let constraints = snapshot.metadata().configuration().keys();
    let constraint = constraints.into_iter().find(|key| key.starts_with("delta.constraints."));
    let schema = snapshot.schema();
    let marked = schema.fields().find(|field| field.metadata().contains_key("delta.invariants"));
    constraint
        .map(|key| format!("the constraint `{key}`"))
        .or_else(|| marked.map(|field| format!("an invariant on the column `{}`", field.name())))
}

fn partition_fault(run: &TableRun<'_>, snapshot: &EagerSnapshot) -> Vec<Fault> {
    let found = snapshot.metadata().partition_columns();
    if found == run.partition_by {
        return Vec::new();
    }
    let problem = format!("is partitioned by {found:?}, the run by {:?}", run.partition_by);
    let hint = format!("set `output.partition_by = {found:?}`");
    vec![Fault::new(&run.target.url, problem).hint(hint)]
}

/// Columns of one name and different types, and the names of those that the table lacks.
fn compare<'a>(url: &str, run: &'a Schema, table: &Schema) -> (Vec<Fault>, Vec<&'a str>) {
    let (mut faults, mut added) = (Vec::new(), Vec::new());
    for field in run.fields() {
        let same_name = |name: &String| name.to_lowercase() == field.name().to_lowercase();
        match table.fields().iter().find(|other| same_name(other.name())) {
            None => added.push(field.name().as_str()),
            Some(other) if other.name() != field.name() => {
                let problem = format!(
                    "has the column `{}`, the run has `{}`: Delta cannot tell them apart",
                    other.name(),
                    field.name()
                );
                faults.push(Fault::new(url, problem));
            }
            Some(other) if same_type(other.data_type(), field.data_type()) => {}
            Some(other) => {
                let named = |data_type: &DataType| type_name(data_type).to_string();
                let (found, expected) = (named(other.data_type()), named(field.data_type()));
                let problem =
                    format!("has `{}` of type {found}, the run's is {expected}", field.name());
                faults.push(Fault::new(url, problem).hint("types of columns do not change"));
            }
        }
    }
    (faults, added)
}

fn with_columns(snapshot: &EagerSnapshot, run: &Schema, added: &[&str]) -> Result<Metadata> {
    let run = described(run)?;
    let lost = |problem: &str| Error::internal("output.table", problem);
    let table = snapshot.schema();
    let new = added.iter().filter_map(|name| run.field(name));
    let fields: Vec<_> = table.fields().chain(new).cloned().collect();
    let schema = StructType::try_new(fields)
        .map_err(|error| lost("the merged schema is none").source(error))?;
    let metadata = snapshot.metadata().clone();
    metadata.with_schema(&schema).map_err(|error| lost("has no metadata").source(error))
}
