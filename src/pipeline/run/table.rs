//! The run's rows in a Delta table: held against it before anything long starts, committed to it before the run's folder
//! appears. `_SUCCESS` therefore says that the table has the rows.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};

use super::{RunMode, Stages};
use crate::commit::{TableCommit, TableRun, portable_schema};
use crate::error::{Error, Result};
use crate::job::DeltaOutputJob;
use crate::output::{COUNTERFACTUALS, StagedFile, counterfactual_schema};

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
        self.table_run(target, &schema, (Path::new(""), &[]), &|_, _| Ok(Vec::new())).check()
    }

    /// Commits the counterfactual table of a run, if the job names a table for it.
    pub(super) fn commit_table(
        &self,
        folder: &Path,
        files: &[StagedFile],
    ) -> Result<Option<TableCommit>> {
        let Some(target) = self.table() else { return Ok(None) };
        let predicate = target.predicate.as_deref().unwrap_or("true");
        let matches = |fields: &[FieldRef], values: &[Vec<Option<String>>]| {
            self.inputs.engine.partitions_where((WHERE, predicate), fields, values)
        };
        let of_table = files.iter().filter(|file| file.name.starts_with(COUNTERFACTUALS));
        let files: Vec<StagedFile> = of_table.cloned().collect();
        let schema = self.counterfactual_columns();
        let commit = self.table_run(target, &schema, (folder, &files), &matches).commit()?;
        tracing::info!(
            version = commit.version,
            rows = commit.rows,
            repeated = commit.repeated,
            "committed to {}",
            commit.url
        );
        Ok(Some(commit))
    }

    fn table_run<'b>(
        &'b self,
        target: &'b DeltaOutputJob,
        schema: &'b Schema,
        (folder, files): (&'b Path, &'b [StagedFile]),
        matches: crate::commit::Matches<'b>,
    ) -> TableRun<'b> {
        TableRun {
            target,
            stores: &self.job.output.stores,
            matches,
            schema,
            partition_by: &self.job.output.partition_by,
            folder,
            files,
            fingerprint: &self.provenance.fingerprint,
            run_id: &self.provenance.run_id,
        }
    }

    /// The table that takes the rows; reports that are made anew have none.
    fn table(&self) -> Option<&DeltaOutputJob> {
        self.job.output.table.as_ref().filter(|_| self.mode != RunMode::Report)
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
