//! Tables of a job that are more than paths: Delta tables in and out.

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;

use super::resolve::JobResolver;
use super::{
    CommitMode, DeltaOutputJob, DeltaOutputSpec, DeltaSpec, DeltaVersion, OneOrMany, TableSpec,
};

impl JobResolver<'_> {
    /// Paths of a table, and the version where it is a Delta table.
    pub(super) fn table(
        &mut self,
        spec: TableSpec,
        key: &str,
    ) -> (Vec<String>, Option<DeltaVersion>) {
        let paths = match spec {
            TableSpec::One(path) => OneOrMany::One(path),
            TableSpec::Many(paths) => OneOrMany::Many(paths),
            TableSpec::Delta(spec) => return self.delta(spec, key),
        };
        (self.tables(paths.into_vec(), key), None)
    }

    fn delta(&mut self, spec: DeltaSpec, key: &str) -> (Vec<String>, Option<DeltaVersion>) {
        let DeltaSpec { url, format: _, version, timestamp } = spec;
        let problem = "is given beside `version`, expected one of them";
        let single = version.is_none() || timestamp.is_none();
        self.require(single, &format!("{key}.timestamp"), problem);
        if let Some(text) = &timestamp {
            let problem =
                format!("is \"{text}\", expected a moment such as \"2026-11-19T02:00:00Z\"");
            let zoned = text.contains('T') && string_to_timestamp_nanos(text).is_ok();
            let zoned = zoned && (text.ends_with('Z') || text[10..].contains(['+', '-']));
            self.require(zoned, &format!("{key}.timestamp"), &problem);
        }
        let version = DeltaVersion { version, timestamp, pinned: None };
        (self.tables(vec![url], &format!("{key}.url")), Some(version))
    }

    pub(super) fn delta_output(&mut self, spec: DeltaOutputSpec) -> DeltaOutputJob {
        const KEY: &str = "output.table.where";
        let replaces = spec.mode == CommitMode::ReplaceWhere;
        let problem = "is missing, expected a predicate over the partition columns, such as \"day = '2026-11-19'\"";
        self.require(!replaces || spec.predicate.is_some(), KEY, problem);
        let problem = "is given, but `output.table.mode` is not `replace_where`";
        self.require(replaces || spec.predicate.is_none(), KEY, problem);
        DeltaOutputJob {
            url: self.tables(vec![spec.url], "output.table.url").remove(0),
            mode: spec.mode,
            predicate: spec.predicate,
            schema: spec.schema,
        }
    }
}
