//! Tables of a job that are more than paths: Delta and Iceberg tables in and out.

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use url::Url;

use super::resolve::JobResolver;
use super::{
    CommitMode, IcebergTable, OneOrMany, SchemaMode, TableAt, TableFormat, TableOutputJob,
    TableOutputSpec, TableSpec, VersionedSpec,
};
use crate::storage::redact;

/// Where a table is, of which the format says what of it must be given.
struct Place {
    format: TableFormat,
    url: Option<String>,
    catalog: Option<String>,
    warehouse: Option<String>,
    table: Option<String>,
}

impl JobResolver<'_> {
    /// Paths of a table, and the version where it has versions.
    pub(super) fn table(&mut self, spec: TableSpec, key: &str) -> (Vec<String>, Option<TableAt>) {
        let paths = match spec {
            TableSpec::One(path) => OneOrMany::One(path),
            TableSpec::Many(paths) => OneOrMany::Many(paths),
            TableSpec::Versioned(spec) => return self.versioned(spec, key),
        };
        (self.tables(paths.into_vec(), key), None)
    }

    fn versioned(&mut self, spec: VersionedSpec, key: &str) -> (Vec<String>, Option<TableAt>) {
        let VersionedSpec { url, format, version, timestamp, .. } = spec;
        let iceberg = format == TableFormat::Iceberg;
        let (wrong, name, right) = match iceberg {
            true => (version.is_some(), "version", "snapshot"),
            false => (spec.snapshot.is_some(), "snapshot", "version"),
        };
        let problem = format!("is given, but tables of this format have a `{right}`");
        self.require(!wrong, &format!("{key}.{name}"), &problem);
        let version = version.or(spec.snapshot.and_then(|id| u64::try_from(id).ok()));
        let problem = format!("is given beside `{right}`, expected one of them");
        let single = version.is_none() || timestamp.is_none();
        self.require(single, &format!("{key}.timestamp"), &problem);
        if let Some(text) = &timestamp {
            let problem =
                format!("is \"{text}\", expected a moment such as \"2026-11-19T02:00:00Z\"");
            let zoned = text.contains('T') && string_to_timestamp_nanos(text).is_ok();
            let zoned = zoned && (text.ends_with('Z') || text[10..].contains(['+', '-']));
            self.require(zoned, &format!("{key}.timestamp"), &problem);
        }
        let (catalog, warehouse, table) = (spec.catalog, spec.warehouse, spec.table);
        let place = Place { format, url, catalog, warehouse, table };
        let (shown, iceberg) = self.place_of(place, key);
        (vec![shown], Some(TableAt { version, timestamp, iceberg, pinned: None }))
    }

    /// Where a table is, in words, and in its catalogue if it is an Iceberg table.
    fn place_of(&mut self, place: Place, key: &str) -> (String, Option<IcebergTable>) {
        let Place { format, url, catalog, warehouse, table } = place;
        let of_catalog = catalog.is_some() || warehouse.is_some() || table.is_some();
        if format == TableFormat::Delta || (url.is_some() && !of_catalog) {
            let problem = "is given, but `format` is `delta`, whose tables have a `url`";
            self.require(!of_catalog, &format!("{key}.catalog"), problem);
            self.require(url.is_some(), &format!("{key}.url"), "is missing");
            let places = url.map(|url| self.tables(vec![url], &format!("{key}.url")));
            let place = places.into_iter().flatten().next().unwrap_or_default();
            let file = IcebergTable { catalog: None, warehouse: None, table: place.clone() };
            return (place, (format == TableFormat::Iceberg).then_some(file));
        }
        let problem = "is given beside `catalog`, expected one of them";
        self.require(url.is_none(), &format!("{key}.url"), problem);
        let catalog = catalog.unwrap_or_default();
        let address = Url::parse(&catalog).ok();
        let usable = address.as_ref().is_some_and(|url| matches!(url.scheme(), "http" | "https"));
        let problem = format!(
            "is \"{}\", expected the address of a REST catalogue, such as \"https://catalog.example.com\"",
            redact(&catalog)
        );
        self.require(usable, &format!("{key}.catalog"), &problem);
        let secret = address.is_some_and(|url| url.password().is_some() || url.query().is_some());
        let problem = "holds credentials or parameters, which a job file must not hold";
        self.require(!secret, &format!("{key}.catalog"), problem);
        let table = table.unwrap_or_default();
        let named = table.split('.').count() > 1 && table.split('.').all(|part| !part.is_empty());
        let problem = format!("is \"{table}\", expected a name such as \"lake.applications\"");
        self.require(named, &format!("{key}.table"), &problem);
        let found = IcebergTable { catalog: Some(catalog), warehouse, table };
        (found.shown(), Some(found))
    }

    pub(super) fn table_output(&mut self, spec: TableOutputSpec) -> TableOutputJob {
        const KEY: &str = "output.table.where";
        if spec.format == TableFormat::Iceberg {
            return self.iceberg_output(spec);
        }
        let replaces = spec.mode == CommitMode::ReplaceWhere;
        let problem = "is missing, expected a predicate over the partition columns, such as \"day = '2026-11-19'\"";
        self.require(!replaces || spec.predicate.is_some(), KEY, problem);
        let problem = "is given, but `output.table.mode` is not `replace_where`";
        self.require(replaces || spec.predicate.is_none(), KEY, problem);
        let (catalog, warehouse, table) = (spec.catalog, spec.warehouse, spec.table);
        let place = Place { format: spec.format, url: spec.url, catalog, warehouse, table };
        let (url, iceberg) = self.place_of(place, "output.table");
        TableOutputJob {
            url,
            iceberg,
            mode: spec.mode,
            predicate: spec.predicate,
            schema: spec.schema,
            beside: spec.beside,
        }
    }

    /// Rows of an Iceberg table are replaced by rewriting the manifests of other writers' files: where one of those goes
    /// wrong, rows are lost that are not ours.
    fn iceberg_output(&mut self, spec: TableOutputSpec) -> TableOutputJob {
        let problem = "replaces rows, expected `append`: rows of an Iceberg table are replaced by rewriting the \
                       manifests of other writers, which this program does not do";
        self.require(spec.mode == CommitMode::Append, "output.table.mode", problem);
        let problem = "is given, but nothing is replaced in an Iceberg table";
        self.require(spec.predicate.is_none(), "output.table.where", problem);
        let problem = "is `merge`, expected `strict`: columns are not added to an Iceberg table";
        self.require(spec.schema == SchemaMode::Strict, "output.table.schema", problem);
        let problem = "is given, but only Delta tables have tables beside them";
        self.require(spec.beside.is_empty(), "output.table.beside", problem);
        let problem = "is given, but a table is committed to through its `catalog`";
        self.require(spec.url.is_none(), "output.table.url", problem);
        let (catalog, warehouse, table) = (spec.catalog, spec.warehouse, spec.table);
        let catalog = Some(catalog.unwrap_or_default());
        let place = Place { format: spec.format, url: None, catalog, warehouse, table };
        let (url, iceberg) = self.place_of(place, "output.table");
        TableOutputJob {
            url,
            iceberg,
            mode: spec.mode,
            predicate: None,
            schema: spec.schema,
            beside: Vec::new(),
        }
    }
}
