//! Runs made by hand: folders with the tables that a page reads, in their own schemas.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::json::ReaderBuilder;
use arrow::json::reader::infer_json_schema_from_iterator;
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use crate::audit::page::{PageContext, PastRun, RowAccounts};
use crate::metrics::wilson;
use crate::output::{
    InputFile, METHOD, RunProvenance, audit_at_bound_schema, audit_changes_schema,
    audit_curves_schema, audit_gaps_schema, audit_groups_schema, audit_table_name,
    counterfactual_schema, mmd_schema, plausibility_schema, report_name, robust_schema,
    sparsity_schema, survival_schema, validity_schema,
};
use crate::report::Gate;

/// A group of a made-up run.
#[derive(Debug, Clone)]
pub(super) struct GroupFixture {
    pub(super) attribute: Option<&'static str>,
    pub(super) value: Option<String>,
    pub(super) rows: u64,
    /// Of the rows, those refused.
    pub(super) refused: f64,
    /// Of the refused, those helped.
    pub(super) helped: f64,
    /// How dear help is.
    pub(super) cost: f64,
    pub(super) reference: bool,
}

pub(super) fn group(
    (attribute, value): (Option<&'static str>, Option<&str>),
    rows: u64,
    (refused, helped): (f64, f64),
    cost: f64,
) -> GroupFixture {
    let value = value.map(str::to_string);
    GroupFixture { attribute, value, rows, refused, helped, cost, reference: false }
}

/// The groups of a small run: two attributes, a group of nulls, one that is too small.
pub(super) fn small() -> Vec<GroupFixture> {
    let sex = |value| (Some("sex"), Some(value));
    let region = |value| (Some("region"), Some(value));
    let mut groups = vec![
        group((None, None), 48_000, (0.34, 0.78), 1.00),
        group(sex("male"), 27_500, (0.31, 0.81), 0.95),
        group(sex("female"), 20_500, (0.38, 0.727), 1.12),
        group(region("North"), 16_200, (0.33, 0.80), 0.98),
        group(region("East"), 11_000, (0.36, 0.79), 1.00),
        group(region("South <b>&\"coast\"</b>"), 9_800, (0.40, 0.66), 1.31),
        group(region("West"), 9_000, (0.30, 0.81), 0.94),
        group(region("Islands"), 1_400, (0.35, 0.76), 1.05),
        group((Some("region"), None), 540, (0.37, 0.74), 1.08),
        group(region("Overseas"), 60, (0.38, 0.7), 1.0),
    ];
    groups[1].reference = true;
    groups[3].reference = true;
    groups
}

impl GroupFixture {
    fn needed(&self) -> u64 {
        (self.rows as f64 * self.refused).round() as u64
    }

    fn valid(&self) -> u64 {
        (self.needed() as f64 * self.helped).round() as u64
    }

    fn infeasible(&self) -> u64 {
        ((self.needed() - self.valid()) as f64 * 0.7).round() as u64
    }

    fn suppressed(&self) -> bool {
        self.attribute.is_some() && self.needed() < 30
    }

    fn whose(&self) -> Value {
        json!({ "target": "approved", "attribute": self.attribute, "value": self.value })
    }

    fn with(&self, figures: Value) -> Value {
        merged(self.whose(), figures)
    }

    fn groups_row(&self) -> Value {
        let shown = |value: f64| (!self.suppressed()).then_some(value);
        let (needed, valid, infeasible) = (self.needed(), self.valid(), self.infeasible());
        let (refusal, recourse) = (wilson(needed, self.rows), wilson(valid, needed));
        let cost = self.cost;
        let row = json!({ "rows": self.rows, "needed": needed, "valid": valid, "infeasible": infeasible,
            "unsolved": needed - valid - infeasible, "already_target": self.rows - needed,
            "reference": self.reference, "suppressed": self.suppressed(), "queries": needed * 41,
            "by_generator": valid / 2, "by_candidate": valid / 4, "by_neighbour": valid / 4, "by_other": 0 });
        let figures = json!({
            "refusal_rate": shown(needed as f64 / self.rows as f64), "refusal_low": shown(refusal.low),
            "refusal_high": shown(refusal.high), "recourse_rate": shown(valid as f64 / needed.max(1) as f64),
            "recourse_low": shown(recourse.low), "recourse_high": shown(recourse.high),
            "cost_mean": shown(1.42 * cost), "n_changed_mean": shown(1.7 * cost.sqrt()),
            "effort_mean": shown(0.31 * cost), "cost_p50": shown(1.21 * cost) });
        self.with(merged(row, figures))
    }

    fn curve_rows(&self) -> Vec<Value> {
        let row = |step: u32| {
            let budget = 0.12 * f64::from(step);
            let reached = 1.0 - (-(budget / self.cost / 1.1).powi(2)).exp();
            let reached = (self.valid() as f64 * reached).round() as u64;
            let found = wilson(reached, self.needed());
            let shown = |value: f64| (!self.suppressed()).then_some(value);
            self.with(
                json!({ "budget": budget, "needed": self.needed(), "suppressed": self.suppressed(),
                "effectiveness": shown(reached as f64 / self.needed().max(1) as f64),
                "low": shown(found.low), "high": shown(found.high) }),
            )
        };
        (1..=32).map(row).collect()
    }

    /// The group against its reference, by three metrics.
    fn gap_rows(&self, reference: &GroupFixture) -> Vec<Value> {
        let spread = |share: f64, n: u64| (share * (1.0 - share) / n.max(1) as f64).sqrt();
        let shares = [
            ("refusal_rate", self.refused, reference.refused, spread(self.refused, self.rows)),
            ("recourse_rate", self.helped, reference.helped, spread(self.helped, self.needed())),
        ];
        let mean = 1.42 * reference.cost;
        let cost = 0.8 / (self.valid().max(1) as f64).sqrt();
        let costs = [("cost_mean", 1.42 * self.cost, mean, cost)];
        let row = |(metric, figure, other, spread): (&str, f64, f64, f64)| {
            let tolerance = if metric == "cost_mean" { 0.05 * mean } else { 0.05 };
            let (difference, half) = (figure - other, 1.96 * spread + 0.004);
            let (low, high) = (difference - half, difference + half);
            let verdict = if low >= -tolerance && high <= tolerance {
                "within"
            } else if low > tolerance || high < -tolerance {
                "exceeds"
            } else {
                "inconclusive"
            };
            let p = (-(difference / spread).powi(2) / 2.0).exp();
            let figures = json!({ "against": "reference", "other": reference.value, "metric": metric,
                "figure": figure, "other_figure": other, "difference": difference, "low": low, "high": high,
                "interval": "newcombe", "p": p, "p_holm": p, "p_by": p, "tolerance": tolerance,
                "cost_agrees": (metric == "cost_mean").then_some(true), "verdict": verdict,
                "suppressed": false });
            self.with(figures)
        };
        shares.into_iter().chain(costs).map(row).collect()
    }
}

/// A folder with the tables of a run with these groups.
pub(super) struct Fixture {
    home: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn empty() -> Fixture {
        let home = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(home.path().join("reports/audit")).expect("made");
        fs::create_dir_all(home.path().join("counterfactuals")).expect("made");
        Fixture { home }
    }

    pub(super) fn of(groups: &[GroupFixture]) -> Fixture {
        let fixture = Fixture::empty();
        let shown: Vec<&GroupFixture> = groups.iter().filter(|group| !group.suppressed()).collect();
        let rows = groups.iter().map(GroupFixture::groups_row).collect::<Vec<_>>();
        fixture.write(&audit_table_name("groups"), audit_groups_schema(), &rows);
        let rows = groups.iter().flat_map(GroupFixture::curve_rows).collect::<Vec<_>>();
        fixture.write(&audit_table_name("curves"), audit_curves_schema(), &rows);
        let reference = |group: &GroupFixture| {
            groups.iter().find(|other| other.reference && other.attribute == group.attribute)
        };
        let gaps = shown.iter().filter(|group| !group.reference);
        let gaps = gaps.filter_map(|group| Some(group.gap_rows(reference(group)?)));
        let rows = gaps.flatten().collect::<Vec<_>>();
        fixture.write(&audit_table_name("gaps"), audit_gaps_schema(), &rows);
        let rows = shown.iter().flat_map(|group| change_rows(group)).collect::<Vec<_>>();
        fixture.write(&audit_table_name("changes"), audit_changes_schema(), &rows);
        let rows = bound_rows(&groups[0]);
        fixture.write(&audit_table_name("at_bound"), audit_at_bound_schema(), &rows);
        fixture.reports();
        fixture
    }

    pub(super) fn path(&self) -> &Path {
        self.home.path()
    }

    /// Writes a table.
    pub(super) fn write(&self, name: &str, schema: SchemaRef, rows: &[Value]) {
        let of_method = schema.field_with_name(METHOD).is_ok();
        let line = |row: &Value| match (of_method, row[METHOD].is_null()) {
            (true, true) => format!("{}\n", merged(row.clone(), json!({ METHOD: "cfrl" }))),
            _ => format!("{row}\n"),
        };
        let lines: String = rows.iter().map(line).collect();
        let mut reader = ReaderBuilder::new(Arc::clone(&schema))
            .build(lines.as_bytes())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let file = File::create(self.path().join(name)).expect("created");
        let mut writer = ArrowWriter::try_new(file, schema, None).expect("a writer");
        while let Some(batch) = reader.next().transpose().unwrap_or_else(|e| panic!("{name}: {e}"))
        {
            writer.write(&batch).expect("written");
        }
        writer.close().expect("closed");
    }

    fn reports(&self) {
        let level = [("all", None), ("target", Some("approved"))];
        let rows = |figures: Value| {
            level.map(|(level, target)| {
                let mut row = figures.clone();
                row["level"] = json!(level);
                row["target"] = json!(target);
                row
            })
        };
        let validity =
            rows(json!({ "rows": 16_320, "valid": 12_730, "validity": 0.78, "low": 0.7737,
            "high": 0.7863 }));
        self.write(&report_name("validity"), validity_schema(&[]), &validity);
        let plausibility = rows(json!({ "rows": 12_730, "plausibility_mean": 0.47,
            "plausibility_p05": 0.08, "plausibility_p50": 0.46 }));
        self.write(&report_name("plausibility"), plausibility_schema(&[]), &plausibility);
        let sparsity = rows(json!({ "over": "valid", "rows": 12_730, "n_changed_mean": 1.71 }));
        self.write(&report_name("sparsity"), sparsity_schema(&[]), &sparsity);
        let mmd = json!({ "level": "target", "target": "approved", "over": "valid", "space": "encoder",
            "mmd2": 0.021, "spread": 0.002, "estimator": "exact", "error": 0.0, "rows": 10_000,
            "reference_rows": 10_000, "bandwidth": 1.0, "encoders": 10, "held_out_mmd2": 0.0006,
            "held_out_rows": 4_000, "unchanged_mmd2": 0.084, "ratio": 0.25 });
        self.write(&report_name("mmd"), mmd_schema(&[]), &[mmd]);
        let robust = rows(json!({ "rows": 12_730, "models": 5, "needed": 4, "robust": 12_348,
            "share": 0.97, "low": 0.9669, "high": 0.9728, "models_mean": 4.91, "cost_mean": 1.42,
            "robustness_cost_mean": 0.11, "robustness_cost_p50": 0.04, "robustness_cost_p95": 0.61 }));
        self.write(&report_name("robust"), robust_schema(&[]), &robust);
        let survival = |model: Option<&str>, share: f64| {
            json!({ "level": "all", "model": model, "rows": 12_730, "survival": share,
                "low": share - 0.006, "high": share + 0.006 })
        };
        let survival = [survival(None, 0.912), survival(Some("models/retrained-1.onnx"), 0.912)];
        self.write(&report_name("survival"), survival_schema(), &survival);
    }

    /// Writes a table whose schema follows from its rows.
    fn write_inferred(&self, name: &str, rows: &[Value]) {
        let values = rows.iter().map(Ok);
        let schema = infer_json_schema_from_iterator(values).expect("a schema");
        self.write(&audit_table_name(name), Arc::new(schema), rows);
    }

    /// What the model was asked, reasons, and a run before.
    pub(super) fn asked(&self, groups: &[GroupFixture]) {
        let share = |of: f64| json!({ "low": of - 0.02, "high": of + 0.02 });
        let actions = |group: &GroupFixture| {
            let action = |(number, (changes, reach)): (u64, &(&str, f64))| {
                let figures = json!({ "action": number, "changes": changes, "size": "p50", "rows": 2_000,
                    "applicable": 1_800, "flipped": 900, "effectiveness": reach * group.helped,
                    "cost_mean": 1.5, "chosen": (number < 2).then_some(number + 1) });
                group.with(merged(figures, share(reach * group.helped)))
            };
            let list =
                [("income +5000", 0.9), ("loan_amount −2000", 0.5), ("purpose = <i>car</i>", 0.1)];
            (0..).zip(&list).map(action).collect::<Vec<_>>()
        };
        let one = |figures: Value, of: f64| {
            let row = |group: &GroupFixture| group.with(merged(figures.clone(), share(of)));
            groups.iter().map(row).collect::<Vec<_>>()
        };
        self.write_inferred("actions", &groups.iter().flat_map(actions).collect::<Vec<_>>());
        let figures = json!({ "rows": 2_000, "chosen": 2, "flipped": 1_500, "effectiveness": 0.75,
            "cost_mean": 1.4, "actions": 60, "choices": 9, "choice": 0.5 });
        self.write_inferred("action_sets", &one(figures, 0.75));
        let figures = json!({ "feature": "age", "constraint": "never", "detail": "may never change", "rows": 500,
            "solved_if_lifted": 300, "share": 0.6, "only_this": 210 });
        self.write_inferred("binding", &one(figures, 0.6));
        let figures = json!({ "feature": "income", "rows": 2_000, "values": 64_000, "reached": 9_000,
            "responsiveness": 0.14, "responsive": 1_100, "share": 0.55 });
        self.write_inferred("responsiveness", &one(figures, 0.55));
        let figures = json!({ "rows": 2_000, "copies": 16, "held": 15, "validity": 0.93, "fragility": 0.07,
            "broken": 410 });
        self.write_inferred("robustness", &one(figures, 0.93));
        let figures = json!({ "feature": "sex", "rows": 2_000, "copies": 2_000, "flipped": 30, "share": 0.015,
            "rows_flipped": 30, "rows_share": 0.015 });
        self.write_inferred("explicit", &one(figures, 0.015));
        let figures = json!({ "metric": "recourse_rate", "rows": 1_000, "figure": 0.7, "figure_again": 0.72,
            "gap": -0.083, "gap_again": -0.02, "moved": 0.063, "tolerance": 0.05, "verdict": "inconclusive" });
        self.write_inferred("second_search", &one(figures, 0.7));
        let figures = json!({ "feature": "income", "direction": "low", "code": "R07", "text": "income too low",
            "rows": 16_320, "named": 9_000, "share": 0.55, "first": 4_000, "without_recourse": 320,
            "contribution_mean": 0.2 });
        self.write_inferred("reason_counts", &one(figures, 0.55));
        let causes = [None, Some("model"), Some("none")];
        let stability = |group: &GroupFixture| {
            let row = |cause: &Option<&str>| {
                group.with(json!({ "cause": cause, "rows": 40_000, "needed": 14_000, "suppressed": false,
                    "decision_churn": 0.04, "decision_churn_low": 0.038, "decision_churn_high": 0.042,
                    "promised": 11_000, "asked": 11_000, "recourse_validity": 0.91 * group.helped,
                    "recourse_validity_low": 0.9 * group.helped, "recourse_validity_high": 0.92 * group.helped,
                    "broken_promises": 3, "paired": 10_000, "answer_churn": 0.2, "needless_churn": 0.03,
                    "needless_churn_low": 0.027, "needless_churn_high": 0.033, "cost_drift": 0.01,
                    "cost_drift_low": -0.01, "cost_drift_high": 0.03 }))
            };
            causes.iter().map(row).collect::<Vec<_>>()
        };
        self.write_inferred("stability", &groups.iter().flat_map(stability).collect::<Vec<_>>());
    }

    /// Counterfactuals of so many rows.
    pub(super) fn counterfactuals(&self, rows: u64) {
        let field = |name: &str, of| Arc::new(Field::new(name, of, true));
        let key = [field("application_id", DataType::Int64)];
        let features = [field("income", DataType::Float64)];
        let schema = counterfactual_schema(&key, &features, false);
        let row = |number: u64| {
            let solved = !number.is_multiple_of(5);
            let status = if number.is_multiple_of(3) {
                "already_target"
            } else if solved {
                "solved"
            } else {
                "infeasible"
            };
            json!({ "application_id": 100_000 + number, "row_hash": number, "sample": 0, "target": "approved",
                "original_class": if number.is_multiple_of(3) { "approved" } else { "rejected" },
                "status": status, "valid": solved, "queries": 12, "certified": !solved,
                "cost": solved.then_some(0.4 + (number % 17) as f64 / 10.0), "l0": 0.0, "l1": 0.1, "n_changed": 1,
                "changes": [{ "feature": "income", "from": "18000", "to": format!("{}", 19_000 + number) },
                    { "feature": "purpose", "from": "car", "to": "<script>alert(1)</script>" }],
                "cf_income": 19_000.0 + number as f64 })
        };
        let list: Vec<Value> = (0..rows).map(row).collect();
        self.write("counterfactuals/part-00000.parquet", schema, &list);
    }
}

/// The columns of both.
fn merged(mut left: Value, right: Value) -> Value {
    if let (Some(left), Value::Object(right)) = (left.as_object_mut(), right) {
        left.extend(right);
    }
    left
}

/// Runs of a week of which one could not be told.
pub(super) fn past() -> Vec<PastRun> {
    let helped = [Some(0.79), Some(0.80), None, Some(0.77), Some(0.785), Some(0.78)];
    let run = |(number, helped): (usize, Option<f64>)| PastRun {
        label: format!("run {}", number + 1),
        rows: 48_000,
        refused: Some(0.33 + number as f64 / 500.0),
        helped,
        shut_out: helped.map(|helped| (1.0 - helped) / 2.0),
        held: helped.filter(|_| number > 0).map(|helped| helped + 0.12),
        robust: None,
        gap: helped.map(|_| 0.09 - number as f64 / 250.0),
    };
    helped.into_iter().enumerate().map(run).collect()
}

fn change_rows(group: &GroupFixture) -> Vec<Value> {
    let signatures = [
        ("income up", 0.31),
        ("loan_amount down", 0.22),
        ("income up, loan_amount down", 0.17),
        ("months_employed up", 0.09),
        ("purpose to car", 0.06),
        ("income up, purpose to <script>alert('x')</script>", 0.04),
    ];
    let row = |(index, (signature, share)): (usize, &(&str, f64))| {
        let shift = if group.value.as_deref() == Some("female") && index == 0 { 0.08 } else { 0.0 };
        let grouped = group.attribute.is_some();
        let part = |of: f64| grouped.then_some(of);
        group.with(json!({ "rank": index + 1, "signature": signature, "changes": [], "valid": group.valid(),
            "rows": (group.valid() as f64 * (share + shift)) as u64, "share": share + shift,
            "cumulative": 0.5, "difference": part(shift), "low": part(shift - 0.011), "high": part(shift + 0.011),
            "missed": 0, "suppressed": false }))
    };
    signatures.iter().enumerate().map(row).collect()
}

fn bound_rows(all: &GroupFixture) -> Vec<Value> {
    let bounds = [
        ("loan_amount", "range_low", 4_960, 1_210),
        ("income", "limit_high", 6_120, 830),
        ("months_employed", "range_high", 1_140, 96),
    ];
    let row = |(feature, bound, changed, rows): (&str, &str, u64, u64)| {
        all.with(
            json!({ "feature": feature, "bound": bound, "valid": all.valid(), "changed": changed,
            "rows": rows, "share": rows as f64 / changed as f64, "suppressed": false }),
        )
    };
    bounds.into_iter().map(row).collect()
}

/// What the manifest of such a run says.
pub(super) fn context() -> PageContext {
    let hash = |digit: &str| digit.repeat(64);
    let input = InputFile {
        path: "/data/applications/2026-11-18.parquet".to_string(),
        bytes: 2_345_678,
        modified: 1,
        rows: 50_000,
        sha256: hash("b"),
        etag: None,
    };
    let run = RunProvenance {
        run_id: "3f2a9c4be1d07755".to_string(),
        fingerprint: format!("3f2a9c4be1d07755{}", "0".repeat(48)),
        inputs: vec![input],
        versions: Vec::new(),
        previous: None,
        model: hash("a"),
        robust: Vec::new(),
        schema: hash("c"),
        generator: hash("d"),
        seed: 1,
        device: "cpu".to_string(),
    };
    let gate =
        |gate: &str, limit, found, passed| Gate { gate: gate.to_string(), limit, found, passed };
    let counts = |list: &[(&str, u64)]| {
        list.iter().map(|(name, rows)| ((*name).to_string(), *rows)).collect()
    };
    PageContext {
        run,
        command: "run".to_string(),
        versions: vec![("overturn".to_string(), "0.2.0".to_string())],
        accounts: RowAccounts {
            read: 50_000,
            out_of_scope: 1_800,
            rejected: counts(&[("null", 150), ("unseen_category", 50)]),
            statuses: counts(&[
                ("already_target", 31_680),
                ("solved", 12_730),
                ("unsolved", 1_077),
                ("infeasible", 2_513),
            ]),
        },
        gates: vec![
            gate("report.gates.min_validity", 0.75, Some(0.78), true),
            gate("report.gates.max_gap", 0.05, Some(0.14), false),
        ],
        tolerance: 0.05,
        min_cell: 30,
        page_rows: 0,
        key: vec!["application_id".to_string()],
        published: None,
        past: Vec::new(),
        past_end: None,
    }
}

/// Where pages are left for a look, if somebody asks for them.
pub(super) fn shelf() -> Option<PathBuf> {
    std::env::var_os("OVERTURN_PAGES").map(PathBuf::from)
}
