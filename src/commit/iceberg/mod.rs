//! Results appended to an Iceberg table: files, a manifest and a list of manifests are written, then the catalogue is
//! asked for one new snapshot on top of the one that was found. Where another writer was faster, the catalogue refuses,
//! and only the list is written anew. The snapshot has the run's fingerprint in its summary.

mod manifest;
mod place;
mod schema;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use self::place::{PlacedFile, place_all};
use self::schema::{Suited, described, suited};
use super::{TableCommit, TableRun};
use crate::error::{Error, Kind, Result};
use crate::job::IcebergTable;
use crate::table::avro::Datum;
use crate::table::iceberg::{Catalog, Committed, Metadata, Snapshot, manifests, write_file};

/// Times that a commit is tried while others commit to the table.
const ATTEMPTS: u32 = 20;
/// The first wait between two; each is longer.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The branch that readers see.
const BRANCH: &str = "main";
/// Where a snapshot has the run's fingerprint.
const FINGERPRINT: &str = "overturn.fingerprint";
/// The setting of a table that says where its metadata are.
const METADATA_PATH: &str = "write.metadata.path";

/// Refuses a table that the run could not be appended to.
pub(super) async fn check(run: &TableRun<'_>, table: &IcebergTable) -> Result<()> {
    let catalog = Catalog::open(table, Kind::Output).await?;
    match catalog.load().await? {
        Some(metadata) => suited(run, &metadata).map(|_| ()),
        None => described(run).map(|_| ()),
    }
}

pub(super) async fn commit(run: &TableRun<'_>, table: &IcebergTable) -> Result<TableCommit> {
    let catalog = Catalog::open(table, Kind::Output).await?;
    let mut appender = Appender { run, catalog, added: None };
    let (mut wait, mut last) = (FIRST_WAIT, String::new());
    for _ in 1..ATTEMPTS {
        match appender.attempt().await? {
            Attempt::Done(commit) => return Ok(commit),
            Attempt::Again(said) => {
                tracing::warn!("the commit is tried again: {said}");
                last = said;
            }
        }
        tokio::time::sleep(wait).await;
        wait = wait.mul_f64(1.3);
    }
    let problem = format!("could not be committed to in {ATTEMPTS} attempts: {last}");
    Err(Error::output(&run.target.url, problem)
        .hint("run again with `--resume`: a commit that was made after all is found"))
}

/// What became of an attempt.
enum Attempt {
    Done(TableCommit),
    /// Another was faster, or nobody knows what became of it.
    Again(String),
}

/// What is written once, however often the commit is tried.
struct Added {
    suited: Suited,
    files: Vec<PlacedFile>,
    /// The manifest, as lists name it.
    manifest: Datum,
}

struct Appender<'a> {
    run: &'a TableRun<'a>,
    catalog: Catalog,
    added: Option<Added>,
}

impl Appender<'_> {
    async fn attempt(&mut self) -> Result<Attempt> {
        let run = self.run;
        let metadata = match self.catalog.load().await? {
            Some(metadata) => metadata,
            None => {
                let (schema, spec) = described(run)?;
                tracing::info!("making the table {}", run.target.url);
                self.catalog.create(schema, spec).await?
            }
        };
        if let Some(found) = self.committed_before(&metadata) {
            return Ok(Attempt::Done(found));
        }
        let suited = suited(run, &metadata)?;
        if self.added.as_ref().is_some_and(|added| added.suited.differs(&suited)) {
            let problem = "was changed by another while the run was writing to it";
            return Err(Error::output(&run.target.url, problem)
                .hint("run again with `--resume` to write the rows as the table has them now"));
        }
        let added = self.added(&metadata, suited).await?;
        let parent = metadata.current();
        let list = write_list(run, &metadata, added).await?;
        let snapshot = snapshot(run, (&metadata, parent), (added, &list));
        let (requirements, updates) = changes(&metadata, parent, snapshot);
        tracing::info!(files = added.files.len(), "committing to {}", run.target.url);
        let files = added.files.len();
        Ok(match self.catalog.commit(requirements, updates).await? {
            Committed::Done => Attempt::Done(self.done(files, false)),
            Committed::Refused(said) => Attempt::Again(said),
            Committed::Unknown(said) => Attempt::Again(format!("no clear answer: {said}")),
        })
    }

    fn done(&self, files_added: usize, repeated: bool) -> TableCommit {
        TableCommit {
            url: self.run.target.url.clone(),
            version: Some(number(self.run).unsigned_abs()),
            rows: self.run.rows(),
            files_added,
            files_removed: 0,
            repeated,
            beside: Vec::new(),
        }
    }

    /// The commit of this run, if it was made.
    fn committed_before(&self, metadata: &Metadata) -> Option<TableCommit> {
        let of_run = |snapshot: &&Snapshot| {
            snapshot.summary.get(FINGERPRINT).is_some_and(|found| *found == self.run.fingerprint)
        };
        metadata.history.snapshots.iter().find(of_run).map(|_| self.done(0, true))
    }

    /// The run's files and their manifest, which are put in place once.
    async fn added(&mut self, metadata: &Metadata, suited: Suited) -> Result<&Added> {
        if self.added.is_none() {
            let run = self.run;
            tracing::info!(files = run.files.len(), "putting files below {}", metadata.location);
            let files = place_all(run, metadata, &suited).await?;
            let content = manifest::manifest(&files, &suited, number(run))?;
            let address = format!("{}/{}-m0.avro", metadata_folder(metadata), run.run_id);
            let bytes = content.len();
            write_file(&address, content, run.stores).await?;
            let manifest = manifest::listed((&address, bytes), &files, (&suited, number(run)));
            self.added = Some(Added { suited, files, manifest });
        }
        self.added.as_ref().ok_or_else(|| Error::internal("output.table", "has no files"))
    }
}

/// The number of the run's snapshot: the same whenever the run is repeated.
fn number(run: &TableRun<'_>) -> i64 {
    let digits = run.fingerprint.get(..16).unwrap_or_default();
    let number = u64::from_str_radix(digits, 16).unwrap_or_default() & i64::MAX.unsigned_abs();
    (number as i64).max(1)
}

fn metadata_folder(metadata: &Metadata) -> String {
    let location = metadata.location.trim_end_matches('/');
    let set = metadata.properties.get(METADATA_PATH);
    set.map_or_else(
        || format!("{location}/metadata"),
        |path| path.trim_end_matches('/').to_string(),
    )
}

/// Writes the list of manifests of the run's snapshot; gives its address.
async fn write_list(run: &TableRun<'_>, metadata: &Metadata, added: &Added) -> Result<String> {
    let parent = metadata.current();
    let before = match parent.map(|snapshot| &snapshot.manifest_list) {
        Some(Some(list)) => manifests(list, run.stores, Kind::Output).await?,
        Some(None) => {
            let problem = "has a snapshot without a list of manifests";
            return Err(
                Error::output(&run.target.url, problem).hint("let its writer make a new snapshot")
            );
        }
        None => Vec::new(),
    };
    let (number, sequence) = (number(run), metadata.last_sequence_number + 1);
    let parent = parent.map(|snapshot| snapshot.snapshot_id);
    let content = manifest::manifest_list(&added.manifest, &before, (number, parent, sequence))?;
    // Each parent has a list of its own: one that another process of this run wrote must not be overwritten.
    let after = parent.unwrap_or_default();
    let name = format!("snap-{number}-{after}-{sequence}-{}.avro", run.run_id);
    let address = format!("{}/{name}", metadata_folder(metadata));
    write_file(&address, content, run.stores).await?;
    Ok(address)
}

fn snapshot(
    run: &TableRun<'_>,
    (metadata, parent): (&Metadata, Option<&Snapshot>),
    (added, list): (&Added, &str),
) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut found = json!({
        "snapshot-id": number(run),
        "sequence-number": metadata.last_sequence_number + 1,
        "timestamp-ms": now.as_millis() as u64,
        "manifest-list": list,
        "schema-id": added.suited.schema.schema_id,
        "summary": summary(run, parent, &added.files),
    });
    if let Some(parent) = parent {
        found["parent-snapshot-id"] = json!(parent.snapshot_id);
    }
    found
}

/// What readers are told of the snapshot. Totals are those of the parent and what is added, where the parent has them.
fn summary(run: &TableRun<'_>, parent: Option<&Snapshot>, files: &[PlacedFile]) -> Value {
    let rows: u64 = files.iter().map(|file| file.rows).sum();
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let mut found = Map::new();
    found.insert("operation".to_string(), json!("append"));
    let counts = [
        ("added-data-files", "total-data-files", files.len() as u64),
        ("added-records", "total-records", rows),
        ("added-files-size", "total-files-size", bytes),
        ("", "total-delete-files", 0),
        ("", "total-position-deletes", 0),
        ("", "total-equality-deletes", 0),
    ];
    for (added, total, count) in counts {
        if !added.is_empty() {
            found.insert(added.to_string(), json!(count.to_string()));
        }
        let before = match parent {
            None => Some(0),
            Some(parent) => parent.summary.get(total).and_then(|text| text.parse::<u64>().ok()),
        };
        if let Some(before) = before {
            found.insert(total.to_string(), json!((before + count).to_string()));
        }
    }
    found.insert(FINGERPRINT.to_string(), json!(run.fingerprint));
    found.insert("overturn.run-id".to_string(), json!(run.run_id));
    Value::Object(found)
}

/// What must hold, and what is to be done.
fn changes(metadata: &Metadata, parent: Option<&Snapshot>, snapshot: Value) -> (Value, Value) {
    let parent = parent.map(|snapshot| snapshot.snapshot_id);
    let mut requirements = vec![
        json!({ "type": "assert-ref-snapshot-id", "ref": BRANCH, "snapshot-id": parent }),
        json!({ "type": "assert-current-schema-id", "current-schema-id": metadata.current_schema_id }),
        json!({ "type": "assert-default-spec-id", "default-spec-id": metadata.default_spec_id }),
    ];
    if let Some(uuid) = &metadata.table_uuid {
        requirements.push(json!({ "type": "assert-table-uuid", "uuid": uuid }));
    }
    let id = snapshot["snapshot-id"].clone();
    let updates = json!([
        { "action": "add-snapshot", "snapshot": snapshot },
        { "action": "set-snapshot-ref", "ref-name": BRANCH, "type": "branch", "snapshot-id": id },
    ]);
    (json!(requirements), updates)
}
