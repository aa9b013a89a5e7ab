//! The run's rows in a Delta table: held against it before anything long starts, committed to it before the run's folder
//! appears. `_SUCCESS` therefore says that the table has the rows.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;

use super::Stages;
use crate::commit::{Matches, TableCommit, TableRun, portable_schema};
use crate::error::{Error, Result};
use crate::job::{Beside, TableOutputJob};
use crate::output::{
    COUNTERFACTUALS, REJECTS, REPORTS, StagedFile, counterfactual_schema, rejects_schema,
};

/// The column by which the rows of many runs are told apart.
const RUN_ID: &str = "run_id";
/// The key of the predicate that says what is replaced.
const WHERE: &str = "output.table.where";

impl Stages<'_> {
    /// Refuses a table that the rows could not be committed to.
    pub(super) fn check_table(&self) -> Result<()> {
        let Some(target) = self.table() else { return Ok(()) };
        let schema = self.counterfactual_columns();
        if let Some(predicate) = &target.predicate {
            let fields = self.partition_fields(&schema)?;
            let columns = Arc::new(Schema::new(fields));
            let checked = self.inputs.engine.check_predicate(columns, WHERE, predicate);
            self.runtime.block_on(checked)?;
        }
        for field in schema.fields() {
            if field.name().contains([' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '=']) {
                let name = field.name();
                tracing::warn!(
                    "the column `{name}` has a name that Spark does not write to Delta tables"
                );
            }
        }
        let none: Matches<'_> = &|_, _| Ok(Vec::new());
        let run = self.table_run(target, &schema, (Path::new(""), &[]), none);
        run.check()?;
        if !target.beside.contains(&Beside::Rejects) {
            return Ok(());
        }
        let (target, schema) = (target.beside(REJECTS), self.rejected_columns());
        let run = self.table_run(&target, &schema, (Path::new(""), &[]), none);
        TableRun { partition_by: &[], ..run }.check()
    }

    /// Commits the counterfactual table of a run, if the job names a table for it.
    pub(super) fn commit_table(
        &self,
        folder: &Path,
        all: &[StagedFile],
    ) -> Result<Option<TableCommit>> {
        let Some(target) = self.table() else { return Ok(None) };
        let predicate = target.predicate.as_deref().unwrap_or("true");
        let matches = |fields: &[FieldRef], values: &[Vec<Option<String>>]| {
            self.inputs.engine.partitions_where((WHERE, predicate), fields, values)
        };
        let of_table = all.iter().filter(|file| file.name.starts_with(COUNTERFACTUALS));
        let files: Vec<StagedFile> = of_table.cloned().collect();
        let schema = self.counterfactual_columns();
        // Who sees the counterfactuals finds the rest there, too.
        let beside = self.commit_beside(target, (folder, all))?;
        let commit = self.table_run(target, &schema, (folder, &files), &matches).commit()?;
        tracing::info!(
            version = commit.version,
            rows = commit.rows,
            repeated = commit.repeated,
            "committed to {}",
            commit.url
        );
        Ok(Some(TableCommit { beside, ..commit }))
    }

    /// Appends rejects and reports, as far as the job wants them, each to its table.
    fn commit_beside(
        &self,
        target: &TableOutputJob,
        (folder, files): (&Path, &[StagedFile]),
    ) -> Result<Vec<TableCommit>> {
        let mut commits = Vec::new();
        for (name, files) in tables_beside(&target.beside, files) {
            let target = target.beside(&name);
            let schema = match name.as_str() {
                REJECTS => self.rejected_columns(),
                _ => reported_columns(folder, &files)?,
            };
            let run = self.table_run(&target, &schema, (folder, &files), &|_, _| Ok(Vec::new()));
            let constant = Some((RUN_ID, self.provenance.run_id.as_str()));
            let run = TableRun { partition_by: &[], prefix: &name, constant, ..run };
            commits.push(run.commit()?);
        }
        Ok(commits)
    }

    /// The columns of the rejects in a table of many runs.
    fn rejected_columns(&self) -> Schema {
        let run_id = Arc::new(Field::new(RUN_ID, DataType::Utf8, false));
        let rejects = rejects_schema(&self.inputs.key_fields());
        Schema::new(
            std::iter::once(run_id).chain(rejects.fields().iter().cloned()).collect::<Vec<_>>(),
        )
    }

    fn table_run<'b>(
        &'b self,
        target: &'b TableOutputJob,
        schema: &'b Schema,
        (folder, files): (&'b Path, &'b [StagedFile]),
        matches: Matches<'b>,
    ) -> TableRun<'b> {
        TableRun {
            target,
            stores: &self.job.output.stores,
            matches,
            schema,
            partition_by: &self.job.output.partition_by,
            folder,
            files,
            prefix: COUNTERFACTUALS,
            constant: None,
            fingerprint: &self.provenance.fingerprint,
            run_id: &self.provenance.run_id,
        }
    }

    /// The table that takes the rows; reports that are made anew have none.
    fn table(&self) -> Option<&TableOutputJob> {
        self.job.output.table.as_ref().filter(|_| !self.mode.works_on_published())
    }

    pub(super) fn counterfactual_columns(&self) -> Schema {
        let (key, features) = (self.inputs.key_fields(), self.inputs.feature_fields());
        counterfactual_schema(&key, &features, self.is_regression()).as_ref().clone()
    }

    /// Columns whose values are a file's: those that a predicate can replace by.
    fn partition_fields(&self, schema: &Schema) -> Result<Vec<FieldRef>> {
        let by = &self.job.output.partition_by;
        if by.is_empty() {
            let problem = "is given, but the run has no partitions";
            return Err(Error::spec(WHERE, problem)
                .hint("name the columns of the predicate in `output.partition_by`"));
        }
        let schema = portable_schema(schema)?;
        let found = schema.fields().iter().filter(|field| by.contains(field.name()));
        Ok(found.cloned().collect())
    }
}

/// Files with rows of the tables that are wanted, by the tables' names: `rejects`, `reports/validity`.
fn tables_beside(wanted: &[Beside], files: &[StagedFile]) -> BTreeMap<String, Vec<StagedFile>> {
    let mut found: BTreeMap<String, Vec<StagedFile>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.rows > 0) {
        let (table, _) = file.name.split_once('/').unwrap_or((&file.name, ""));
        let name = match table {
            REJECTS if wanted.contains(&Beside::Rejects) => REJECTS,
            REPORTS if wanted.contains(&Beside::Reports) => file.name.trim_end_matches(".parquet"),
            _ => continue,
        };
        found.entry(name.to_string()).or_default().push(file.clone());
    }
    found
}

/// The columns of a report that was just written, in a table of many runs.
fn reported_columns(folder: &Path, files: &[StagedFile]) -> Result<Schema> {
    let mut fields = vec![Arc::new(Field::new(RUN_ID, DataType::Utf8, false))];
    if let Some(file) = files.first() {
        fields.extend(stored_fields(&folder.join(&file.name))?);
    }
    Ok(Schema::new(fields))
}

/// The columns of a file.
fn stored_fields(path: &Path) -> Result<Vec<FieldRef>> {
    let unread = |error: ParquetError| {
        Error::output(path.display().to_string(), "cannot be read back").source(error)
    };
    let file = File::open(path).map_err(|error| unread(error.into()))?;
    let read = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(unread)?;
    Ok(read.schema().fields().iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_and_each_report_are_tables_of_their_own() {
        let file = |name: &str, rows| StagedFile {
            name: name.to_string(),
            rows,
            bytes: 1,
            sha256: String::new(),
        };
        let files = [
            file("counterfactuals/part-00000.parquet", 3),
            file("rejects/part-00000.parquet", 1),
            file("rejects/part-00001.parquet", 0),
            file("reports/validity.parquet", 2),
            file("reports/audit/groups.parquet", 2),
        ];
        let names =
            |wanted: &[Beside]| tables_beside(wanted, &files).into_keys().collect::<Vec<_>>();
        assert_eq!(names(&[Beside::Rejects]), ["rejects"]);
        let both = names(&[Beside::Rejects, Beside::Reports]);
        assert_eq!(both, ["rejects", "reports/audit/groups", "reports/validity"]);
        assert!(names(&[]).is_empty());
    }
}
