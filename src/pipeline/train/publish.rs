//! The generator, the training curve and the manifest, published as one folder.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch};

use super::super::{manifest, versions};
use super::Trained;
use crate::artefact::{WEIGHTS_FILE, save};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::output::{
    GENERATOR, MANIFEST_FILE, REPORTS, RunProvenance, StagedFile, Staging, TRAINING_REPORT,
    TableWriter, WriterOptions, sha256_of, training_schema,
};
use crate::train::Point;

pub(super) fn publish(
    job: &Job,
    staging: Staging,
    trained: &Trained,
    mut provenance: RunProvenance,
) -> Result<()> {
    let metadata = vec![("overturn.versions".to_string(), versions()?.to_string())];
    let options = WriterOptions { row_group_rows: job.output.row_group_rows, metadata };
    let files = save_generator(&staging, trained, &options)?;
    let weights = staging.folder().join(GENERATOR).join(WEIGHTS_FILE);
    provenance.generator = sha256_of(&weights).map(|(_, hash)| hash).map_err(|error| {
        Error::output(weights.display().to_string(), format!("cannot be read back: {error}"))
    })?;
    let written = (files, staging.folder());
    let manifest = manifest("train", provenance, (job, &trained.summary), written)?.text()?;
    staging.write(MANIFEST_FILE, &manifest)?;
    crate::stop::check()?;
    staging.publish()?;
    Ok(())
}

/// Writes the generator and its training curve; gives the tables among the files.
pub(in crate::pipeline) fn save_generator(
    staging: &Staging,
    trained: &Trained,
    options: &WriterOptions,
) -> Result<Vec<StagedFile>> {
    let folder = staging.tables(&[GENERATOR, REPORTS])?;
    save(&folder.join(GENERATOR), &trained.artefact, &trained.neighbours)?;
    let name = format!("{REPORTS}/{TRAINING_REPORT}");
    let mut writer = TableWriter::create(folder.join(&name), name, training_schema(), options)?;
    writer.write(&table(&trained.curve)?)?;
    Ok(vec![writer.close()?])
}

/// The training curve as a table.
fn table(curve: &[Point]) -> Result<RecordBatch> {
    let numbers = |of: fn(&Point) -> f64| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(curve.iter().map(of)))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(curve.iter().map(|point| point.step as i64))),
        numbers(|point| point.seconds),
        numbers(|point| point.reward),
        numbers(|point| point.critic_loss),
        numbers(|point| point.actor_loss),
        numbers(|point| point.sparsity_loss),
        numbers(|point| point.consistency_loss),
        numbers(|point| point.quality.validity),
        numbers(|point| point.quality.l0),
        numbers(|point| point.quality.l1),
        numbers(|point| point.quality.changed),
        Arc::new(BooleanArray::from_iter(curve.iter().map(|point| Some(point.best)))),
    ];
    RecordBatch::try_new(training_schema(), columns)
        .map_err(|error| Error::internal("training report", "columns do not fit").source(error))
}
