//! The plan of a run by itself: what is written follows from the splits, however the engine deals them out.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::Schema;
use futures::StreamExt;
use overturn::artefact::{Artefact, load, load_neighbours};
use overturn::document::Overrides;
use overturn::engine::{ExplainPlan, Split, SplitRecord, SplitWork};
use overturn::explain::{ColumnIndices, ExplainSetup, Explainer, RobustModels, StageSeconds};
use overturn::job::{Job, Placeholders};
use overturn::output::{TableFiles, WriterOptions};
use overturn::pipeline::{Inputs, Scope};
use overturn::predictor;
use overturn::runtime::Runtime;

use crate::fitted::{applications, generator};
use crate::util::{Bench, files_below};

/// A job with all that its plan needs.
struct Planned {
    job: Job,
    inputs: Inputs,
    runtime: Runtime,
    explained: Arc<AtomicU64>,
}

impl Planned {
    fn new(bench: &Bench, lines: &str) -> Planned {
        let table = applications(bench, 9_000, &["--files", "2", "--nulls", "0.01"]);
        bench.explain_job(&table, "split_rows = 1000\nrefine = \"repair\"\n");
        bench.append("job.toml", lines);
        let placeholders = Placeholders::parse(&[]).expect("none");
        let overrides = Overrides::parse(&[]).expect("none");
        let job = Job::read(&bench.path("job.toml"), &placeholders, &overrides).expect("a job");
        let runtime = Runtime::start(&job.runtime).expect("a runtime");
        let inputs = Inputs::open(&job.input, &job.runtime, 2).expect("tables");
        Planned { job, inputs, runtime, explained: Arc::default() }
    }

    fn splits(&self) -> Vec<Split> {
        self.inputs.engine.splits(&self.inputs.features, self.job.explain.split_rows)
    }

    fn explainer(&self) -> Arc<Explainer> {
        let (inputs, job) = (&self.inputs, &self.job);
        let columns = inputs.predictor_columns();
        let predictor = predictor::open(&job.predictor, &columns, 2).expect("a model");
        let Artefact { description, generator: network, .. } =
            load(generator(), self.runtime.device).expect("a generator");
        let fields = inputs.columns.iter();
        let fields = fields.filter_map(|name| inputs.features.schema.field_with_name(name).ok());
        let setup = ExplainSetup {
            description: &description,
            schema: Arc::clone(&inputs.schema),
            table: Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>())),
            columns: ColumnIndices {
                key: inputs.key.to_vec(),
                features: inputs.feature_columns.to_vec(),
                ..ColumnIndices::default()
            },
            predictor,
            robust: RobustModels::default(),
            decisions: None,
            target: job.target.as_ref().expect("a target"),
            explain: &job.explain,
            neighbours: Some(load_neighbours(generator(), &description).expect("rows")),
            streams: self.runtime.streams(),
        };
        Arc::new(Explainer::new(network, setup).expect("an explainer"))
    }

    /// The plan that writes into a folder, with its splits in so many partitions.
    async fn plan(&self, folder: &Path, partitions: usize) -> ExplainPlan {
        for table in ["counterfactuals", "rejects"] {
            fs::create_dir_all(folder.join(table)).expect("made");
        }
        let (inputs, splits) = (&self.inputs, self.splits());
        let scan = inputs.plan(Scope::explained(&self.job.input));
        let scan = inputs.engine.split_scan(scan, &splits).await.expect("a scan");
        let options = WriterOptions { row_group_rows: 65_536, metadata: Vec::new() };
        let explained = Arc::clone(&self.explained);
        let work = SplitWork {
            explainer: Some(self.explainer()),
            files: TableFiles {
                folder: folder.to_path_buf(),
                options,
                partition_by: vec!["status".to_string()],
            },
            on_rows: Arc::new(move |rows| {
                explained.fetch_add(rows, Ordering::Relaxed);
            }),
        };
        inputs.engine.explain_plan(scan, &splits, partitions, work).expect("a plan")
    }

    /// The records of all splits, in order, without what differs from run to run.
    fn records(&self, folder: &Path, partitions: usize) -> Vec<SplitRecord> {
        let records = self.runtime.block_on(async {
            let plan = self.plan(folder, partitions).await;
            let records = plan.records(2).collect::<Vec<_>>().await;
            let measured = plan.measured();
            assert!(measured.contains("rows_explained=") && measured.contains("peak_reserved"));
            records.into_iter().collect::<Result<Vec<_>, _>>()
        });
        let mut records = records.expect("explained");
        records.sort_by_key(|record| record.split);
        records.iter_mut().for_each(|record| record.seconds = StageSeconds::default());
        records
    }
}

#[test]
fn files_and_records_do_not_depend_on_partitions() {
    let bench = Bench::new();
    let planned = Planned::new(&bench, "");
    let splits = planned.splits().len();
    assert!(splits >= 8, "{splits}");
    let expected = planned.records(&bench.path("each"), splits);
    assert_eq!(expected.len(), splits);
    assert_eq!(planned.explained.load(Ordering::Relaxed), 9_000);
    assert_eq!(expected.iter().map(|record| record.rows).sum::<u64>(), 9_000);
    let accounted = |record: &SplitRecord| {
        record.explained + record.rejected.values().sum::<u64>() == record.rows
            && record.statuses.values().sum::<u64>() == record.explained
    };
    assert!(expected.iter().all(accounted), "{expected:?}");
    for partitions in [1, 2, 4] {
        // Hashes of the files are part of the records.
        let found = planned.records(&bench.path(&partitions.to_string()), partitions);
        assert_eq!(found, expected, "{partitions} partitions");
    }
}

#[test]
fn nobody_goes_on_when_the_stream_is_dropped() {
    let bench = Bench::new();
    let planned = Planned::new(&bench, "");
    let folder = bench.path("dropped");
    let first = planned.runtime.block_on(async {
        let plan = planned.plan(&folder, planned.splits().len()).await;
        let mut records = plan.records(1);
        records.next().await.expect("a record")
    });
    assert!(first.expect("explained").rows > 0);
    // What is under way ends with the block that it was at.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let after = planned.explained.load(Ordering::Relaxed);
    assert!(after <= 3_000, "{after} rows were explained");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(planned.explained.load(Ordering::Relaxed), after);
    let files = files_below(&folder, "parquet");
    assert!(!files.is_empty());
}

#[test]
fn more_memory_than_the_job_allows_is_refused() {
    let bench = Bench::new();
    let mut planned = Planned::new(&bench, "");
    planned.job.runtime.memory.0 = 100_000;
    planned.inputs = Inputs::open(&planned.job.input, &planned.job.runtime, 2).expect("tables");
    let folder = bench.path("small");
    let error = planned.runtime.block_on(async {
        let plan = planned.plan(&folder, 1).await;
        let mut records = plan.records(1);
        records.next().await.expect("an answer")
    });
    let error = error.expect_err("too little memory");
    assert_eq!(error.exit_code(), 2);
    let text = format!("{error} {:?}", error.faults());
    assert!(text.contains("raise `runtime.memory`"), "{text}");
}
