//! The lowest and highest value of every number of a job, with the reason. The one table of them: it goes
//! into the JSON Schema of the job file, against which files are checked, so that editors, the program and
//! the README say the same.

use schemars::Schema;

use super::report::MOST_ENCODERS;
use super::runtime::MOST_THREADS;
use crate::document::{Low, NumberLimit, write_limits};

/// The farthest from zero that a number of a job or schema may be: the difference of two is still a number.
pub const FARTHEST: f64 = 1e300;

/// Seconds of a year: what takes longer has no limit.
const YEAR: f64 = 31_536_000.0;

/// Counts that are only counted down are limited so that they cannot overflow.
const BILLION: f64 = 1e9;

const SHARE: &str = "it is a share";
const TIME: &str = "a year is as good as no limit";
const COUNTED: &str = "more is never reached";
const WEIGHT: &str = "networks count in 32 bits";
const WIDTH: &str = "wider layers learn no better and do not fit into memory";
const BATCH: &str = "a batch is held in memory many times over";

const fn limit(key: &'static str, low: f64, high: f64, why: &'static str) -> NumberLimit {
    NumberLimit { key, low: Low::From(low), high, why }
}

const fn above(key: &'static str, low: f64, high: f64, why: &'static str) -> NumberLimit {
    NumberLimit { key, low: Low::Above(low), high, why }
}

/// Every number of a job.
pub const LIMITS: &[NumberLimit] = &[
    limit("input.batch_rows", 1.0, 1_048_576.0, BATCH),
    limit("input.max_reject_share", 0.0, 1.0, SHARE),
    limit("input.scores.parity_rows", 0.0, BILLION, COUNTED),
    limit("input.scores.parity_tolerance", 0.0, 1.0, SHARE),
    limit("input.features.version", 0.0, i64::MAX as f64, "Delta counts versions so far"),
    limit("input.features.snapshot", 1.0, i64::MAX as f64, "Iceberg has no higher numbers"),
    limit("predictor.workers", 0.0, MOST_THREADS as f64, "no machine has more cores"),
    above("predictor.start_seconds", 0.0, YEAR, TIME),
    above("predictor.batch_seconds", 0.0, YEAR, TIME),
    limit("predictor.retries", 0.0, 100.0, "what fails a hundred times fails"),
    limit("predictor.max_failed_share", 0.0, 1.0, SHARE),
    limit(
        "predictor.limits.files",
        16.0,
        1_048_576.0,
        "an interpreter needs more than a few, and the kernel allows no more",
    ),
    limit(
        "predictor.limits.processes",
        1.0,
        4_194_304.0,
        "there is at least the program itself, and the kernel numbers no more",
    ),
    limit("predictor.limits.cpu_seconds", 1.0, YEAR, TIME),
    limit("predictor.standardise.mean", -FARTHEST, FARTHEST, WEIGHT),
    above("predictor.standardise.std", 0.0, FARTHEST, WEIGHT),
    limit("target.value", -FARTHEST, FARTHEST, "the two ends of a range must have a distance"),
    limit("target.range", -FARTHEST, FARTHEST, "the two ends of a range must have a distance"),
    limit("target.tolerance", 0.0, FARTHEST, "the two ends of a range must have a distance"),
    limit("autoencoder.hidden", 1.0, 8_192.0, WIDTH),
    limit("autoencoder.latent", 1.0, 8_192.0, WIDTH),
    limit("autoencoder.steps", 1.0, BILLION, COUNTED),
    limit("autoencoder.batch", 1.0, 65_536.0, BATCH),
    above("autoencoder.learning_rate", 0.0, 1.0, "larger steps diverge"),
    limit("autoencoder.min_quality", -1.0, 1.0, "1 is perfect, which nothing exceeds"),
    limit("train.max_rows", 1.0, BILLION, "rows are counted in 32 bits"),
    limit("train.validation_rows", 1.0, 1_000_000.0, "they are evaluated again and again"),
    limit("train.test_rows", 1.0, 10_000_000.0, "they are held in memory"),
    limit("train.max_steps", 1.0, BILLION, COUNTED),
    above("train.max_seconds", 0.0, YEAR, TIME),
    limit("train.validate_every", 1.0, BILLION, COUNTED),
    limit("train.patience", 1.0, BILLION, COUNTED),
    above("train.checkpoint_seconds", 0.0, YEAR, TIME),
    limit("train.batch", 1.0, 65_536.0, BATCH),
    limit("train.hidden", 1.0, 8_192.0, WIDTH),
    above("train.learning_rate", 0.0, 1.0, "larger steps diverge"),
    limit("train.sparsity", 0.0, 1e6, WEIGHT),
    limit("train.consistency", 0.0, 1e6, WEIGHT),
    limit("explain.samples", 1.0, 1_000.0, "a batch of them is held in memory"),
    limit("explain.split_rows", 1.0, BILLION, "rows are counted in 32 bits"),
    limit("explain.queries_per_row", 1.0, 10_000.0, "all proposals of a block are held in memory"),
    above("explain.max_seconds", 0.0, YEAR, TIME),
    limit("explain.max_changes", 1.0, 1e6, "no table has more features"),
    limit("explain.min_plausibility", 0.0, 1.0, SHARE),
    limit("explain.neighbours", 0.0, 1_000.0, "more are of no use to one row"),
    limit("explain.plausibility_weight", 0.0, 1e6, WEIGHT),
    limit("explain.min_score", 0.0, 1.0, SHARE),
    limit("robust.share", 0.0, 1.0, SHARE),
    limit("report.mmd.encoders", 1.0, MOST_ENCODERS as f64, "a generator keeps so many"),
    limit("report.mmd.rows", 0.0, 1e8, "they are held in memory"),
    limit("report.mmd.pairs", 0.0, 1e11, "more take hours"),
    limit("report.mmd.frequencies", 2.0, 65_536.0, "sums of all of them are held in memory"),
    limit("report.mmd.permutations", 0.0, 1e6, "a p-value needs no more"),
    limit("report.gates.min_validity", 0.0, 1.0, SHARE),
    above("report.gates.max_mmd_ratio", 0.0, 1e12, "it is a ratio"),
    limit("report.gates.max_reject_share", 0.0, 1.0, SHARE),
    limit("report.gates.min_median_plausibility", 0.0, 1.0, SHARE),
    limit("report.gates.min_survival", 0.0, 1.0, SHARE),
    limit("report.gates.min_robust", 0.0, 1.0, SHARE),
    limit("report.gates.min_recourse_validity", 0.0, 1.0, SHARE),
    limit("report.gates.max_needless_churn", 0.0, 1.0, SHARE),
    limit("report.gates.max_gap", 0.0, 1.0, SHARE),
    limit("audit.tolerance", 0.0, FARTHEST, "a share of a mean may be any"),
    limit("audit.budgets", 0.0, FARTHEST, "costs are finite"),
    limit("audit.min_cell", 1.0, BILLION, COUNTED),
    limit("audit.queries", 0.0, 1e12, COUNTED),
    limit("audit.page.rows", 0.0, 2_000.0, "the page is one file that a browser holds whole"),
    limit("output.keep", 0.0, 100.0, "each takes as much space as a run"),
    limit("output.row_group_rows", 1.0, 16_777_216.0, "a row group is written from memory"),
    limit("runtime.threads", 0.0, MOST_THREADS as f64, "no machine has more cores"),
    limit("runtime.seed", 0.0, i64::MAX as f64, "TOML has no larger whole number"),
];

/// One function a section, as the schema generator wants them.
macro_rules! sections {
    ($($name:ident = $section:literal),* $(,)?) => {
        $(pub(super) fn $name(schema: &mut Schema) { write_limits($section, LIMITS, schema); })*
    };
}

sections!(
    input = "input",
    scores = "input.scores",
    versioned = "input.features",
    predictor = "predictor",
    limits = "predictor.limits",
    standardise = "predictor.standardise",
    target = "target",
    autoencoder = "autoencoder",
    train = "train",
    explain = "explain",
    robust = "robust",
    mmd = "report.mmd",
    gates = "report.gates",
    audit = "audit",
    page = "audit.page",
    output = "output",
    runtime = "runtime",
);

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::document::json_schema;
    use crate::job::JobSpec;

    fn numeric(schema: &Value) -> bool {
        let kind = schema.get("type").map(ToString::to_string).unwrap_or_default();
        kind.contains("integer") || kind.contains("number")
    }

    #[test]
    fn every_number_of_a_job_has_limits() {
        let schema = json_schema::<JobSpec>();
        let mut numbers = 0;
        for (name, definition) in schema["$defs"].as_object().expect("definitions") {
            let Some(properties) = definition.get("properties") else { continue };
            for (key, property) in properties.as_object().expect("properties") {
                let property = property.get("items").unwrap_or(property);
                if numeric(property) {
                    numbers += 1;
                    let limited = property.get("maximum").is_some();
                    assert!(limited, "`{key}` of {name} has no row in LIMITS");
                }
            }
        }
        assert_eq!(numbers, LIMITS.len(), "a limit without a key");
    }

    #[test]
    fn limits_are_the_right_way_round() {
        for limit in LIMITS {
            let (Low::From(low) | Low::Above(low)) = limit.low;
            assert!(low < limit.high, "{}", limit.key);
        }
    }
}
