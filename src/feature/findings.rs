//! What the statistics of a table mean under a schema's policies: faults that end a job before it
//! starts, and things worth knowing.

use super::schema::{Categorical, Feature, FeatureKind, FeatureSchema, Numeric};
use super::spec::{NullPolicy, OutsidePolicy, UnseenPolicy};
use super::stats::{CategoricalStats, FeatureStats, NumericStats, Stats};
use crate::document::did_you_mean;
use crate::error::Fault;

/// What was found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Findings {
    /// What makes the table unusable.
    pub faults: Vec<Fault>,
    /// What sets rows aside: the fault of each such feature, and the rows it concerns.
    pub rejections: Vec<(Fault, u64)>,
    /// What is odd, but usable.
    pub remarks: Vec<Fault>,
}

impl Findings {
    /// Holds statistics against a schema; `subject` names the table.
    pub fn new(schema: &FeatureSchema, stats: &Stats, subject: &str) -> Findings {
        let mut findings = Findings::default();
        for (feature, seen) in schema.features.iter().zip(&stats.features) {
            let mut check =
                ColumnCheck { feature, subject, rows: stats.rows, findings: &mut findings };
            match (&feature.kind, seen) {
                (FeatureKind::Numeric(numeric), FeatureStats::Numeric(seen)) => {
                    check.numeric(numeric, seen);
                }
                (FeatureKind::Categorical(categorical), FeatureStats::Categorical(seen)) => {
                    check.categorical(categorical, seen);
                }
                _ => {}
            }
        }
        findings
    }

    /// The most rows that a single feature sets aside: at least so many will be rejected.
    pub fn least_rejected(&self) -> u64 {
        self.rejections.iter().map(|(_, rows)| *rows).max().unwrap_or(0)
    }
}

struct ColumnCheck<'a> {
    feature: &'a Feature,
    subject: &'a str,
    rows: u64,
    findings: &'a mut Findings,
}

impl ColumnCheck<'_> {
    fn numeric(&mut self, numeric: &Numeric, seen: &NumericStats) {
        self.nulls(seen.nulls);
        if seen.infinite > 0 {
            let fault =
                self.fault(seen.infinite, "infinite").hint("infinite numbers are always rejected");
            self.findings.rejections.push((fault, seen.infinite));
        }
        if let Some((low, high)) = numeric.range.filter(|_| seen.outside > 0) {
            let what =
                format!("outside its range {low} to {high} (seen: {} to {})", seen.min, seen.max);
            match numeric.outside {
                OutsidePolicy::Reject => {
                    let fault = self
                        .fault(seen.outside, &what)
                        .hint("`outside = \"carry\"` would use them");
                    self.findings.rejections.push((fault, seen.outside));
                }
                OutsidePolicy::Carry => {
                    let fault = self
                        .fault(seen.outside, &what)
                        .hint("used as they are; widen `range` if it is wrong");
                    self.findings.remarks.push(fault);
                }
            }
        }
        if seen.count > 1 && seen.min == seen.max {
            self.remark(format!("column `{}` is constant ({})", self.feature.name, seen.min));
        }
    }

    fn categorical(&mut self, categorical: &Categorical, seen: &CategoricalStats) {
        self.nulls(seen.nulls);
        if seen.unseen > 0 {
            let fault = self.unseen(categorical, seen);
            match categorical.unseen {
                UnseenPolicy::Reject => self.findings.rejections.push((fault, seen.unseen)),
                UnseenPolicy::Carry | UnseenPolicy::Fill => self.findings.remarks.push(fault),
            }
        }
        let never = seen.counts.iter().filter(|count| **count == 0).count();
        if never > 0 && self.rows > 0 && seen.unseen > 0 {
            let of = categorical.values.len();
            self.remark(format!(
                "column `{}`: {never} of {of} values never occur",
                self.feature.name
            ));
        }
    }

    fn nulls(&mut self, nulls: u64) {
        let name = &self.feature.name;
        if nulls == self.rows && self.rows > 0 {
            let fault = Fault::new(self.subject, format!("column `{name}` is null in every row"));
            self.findings
                .faults
                .push(fault.hint("leave it out of the schema, or repair the table"));
        } else if nulls > 0 && self.feature.nulls == NullPolicy::Reject {
            let fault = self.fault(nulls, "null").hint(
                "`nulls = \"carry\"` keeps them as a state of their own, `nulls = \"fill\"` puts a value in",
            );
            self.findings.rejections.push((fault, nulls));
        }
    }

    fn unseen(&self, categorical: &Categorical, seen: &CategoricalStats) -> Fault {
        let shown: Vec<String> =
            seen.unseen_values.keys().take(3).map(|value| format!("\"{value}\"")).collect();
        let what = format!("not one of its values: {}", shown.join(", "));
        let known = || categorical.values.iter().map(String::as_str);
        let meant = seen.unseen_values.keys().find_map(|value| did_you_mean(value, known()));
        let advice = "add them to `values`, or use `unseen = \"carry\"` or `unseen = \"fill\"`";
        let hint = meant.map_or(advice.to_string(), |meant| format!("{meant} Otherwise {advice}"));
        self.fault(seen.unseen, &what).hint(hint)
    }

    fn fault(&self, rows: u64, what: &str) -> Fault {
        let share = 100.0 * rows as f64 / self.rows.max(1) as f64;
        let verb = if rows == 1 { "row is" } else { "rows are" };
        let problem =
            format!("column `{}`: {rows} {verb} {what} ({share:.2} %)", self.feature.name);
        Fault::new(self.subject, problem)
    }

    fn remark(&mut self, problem: String) {
        self.findings.remarks.push(Fault::new(self.subject, problem));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray};

    use super::*;
    use crate::feature::StatsAccumulator;

    fn findings(age: Vec<Option<f64>>, job: Vec<Option<&str>>) -> Findings {
        let text = "[[feature]]\nname = \"age\"\nkind = \"numeric\"\nrange = [0, 100]\n\
                    [[feature]]\nname = \"job\"\nkind = \"categorical\"\nvalues = [\"clerk\", \"smith\"]\n";
        let schema = FeatureSchema::parse(text, Path::new("f.toml")).expect("a good schema");
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("age", Arc::new(Float64Array::from(age))),
            ("job", Arc::new(StringArray::from(job))),
        ];
        let mut stats = StatsAccumulator::new(&schema);
        stats.update(&RecordBatch::try_from_iter(columns).expect("a good batch")).expect("counted");
        Findings::new(&schema, &stats.finish(), "t")
    }

    #[test]
    fn what_sets_rows_aside_is_counted_per_feature() {
        let found = findings(
            vec![Some(1.0), None, Some(f64::INFINITY), Some(300.0)],
            vec![Some("clerk"), Some("clark"), Some("smith"), Some("clark")],
        );
        let texts: Vec<String> =
            found.rejections.iter().map(|(fault, _)| fault.to_string()).collect();
        assert_eq!(texts[0], "t: column `age`: 1 row is null (25.00 %)");
        assert_eq!(texts[1], "t: column `age`: 1 row is infinite (25.00 %)");
        assert_eq!(
            texts[2],
            "t: column `job`: 2 rows are not one of its values: \"clark\" (50.00 %)"
        );
        let hint = found.rejections[2].0.hint.as_deref().expect("a hint");
        assert!(hint.starts_with("did you mean `clerk`?"), "{hint}");
        assert_eq!(found.least_rejected(), 2);
        assert!(found.remarks[0].problem.contains("outside its range 0 to 100"), "{found:?}");
    }

    #[test]
    fn a_column_of_nulls_is_a_fault() {
        let found = findings(vec![None, None], vec![Some("clerk"), Some("smith")]);
        assert_eq!(found.faults[0].to_string(), "t: column `age` is null in every row");
    }
}
