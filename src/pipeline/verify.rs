//! `overturn verify`: whether a published folder is what its manifest says, and whether the counts in it add up.
//! Manifest and tables are data from outside: nothing is opened but regular files inside the folder, and nothing
//! of it is executed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Seek;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow::array::AsArray;
use arrow::datatypes::Int32Type;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rayon::prelude::*;
use serde::Serialize;
use serde_json::Value;

use super::chain::{Chain, follow};
use super::fetch::fetched_once;
use crate::artefact::WEIGHTS_FILE;
use crate::document::open_unlinked;
use crate::error::{Error, Fault, Kind, Result};
use crate::output::{
    COUNTERFACTUALS, FolderEntry, GENERATOR, InputFile, METHOD, Manifest, REJECTS, SCORES,
    SUCCESS_FILE, TableEntry, folder_values, list, sha256_read, success_problem,
};
use crate::runtime::Runtime;
use crate::storage::{ObjectUrl, Stores, is_url, wait};

/// The column that numbers the counterfactuals of a row.
const SAMPLE: &str = "sample";

/// What a check of a published folder found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// The folder.
    pub folder: String,
    /// The command that made it.
    pub command: String,
    /// Name of the run; none for `train` and `score` of version 0.1.0.
    pub run_id: Option<String>,
    /// Files that the manifest lists.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Rows of all tables.
    pub rows: u64,
    /// Input files held against their fingerprints; none if that was not asked for.
    pub inputs: Option<usize>,
    /// The runs before it, as far as they are there; none if it was compared with none.
    pub previous: Option<Chain>,
    /// Everything that is not as the manifest says; nothing if all is well.
    pub differences: Vec<Difference>,
}

/// Something that is not as the manifest says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// The file, or the count.
    pub subject: String,
    /// What was found, and what was expected.
    pub problem: String,
}

impl Difference {
    pub(super) fn new(subject: &str, problem: impl Into<String>) -> Difference {
        Difference { subject: subject.to_string(), problem: problem.into() }
    }
}

/// What all differences end with, if there are any.
///
/// # Errors
/// Lists them.
pub fn difference_error(verified: &Verified) -> Result<()> {
    let fault = |found: &Difference| {
        let subject = format!("{}: {}", verified.folder, found.subject);
        Fault::new(subject, &found.problem)
    };
    Error::from_faults(Kind::Input, verified.differences.iter().map(fault).collect())
}

/// Holds a published folder against its manifest; with `inputs` also the files that the run read, where they stand.
///
/// # Errors
/// When there is no manifest that can be read, or the folder cannot be. What differs is no error here.
pub fn verify(folder: &Path, inputs: bool, runtime: &Runtime) -> Result<Verified> {
    let text = folder.to_string_lossy();
    if !is_url(&text) {
        return verify_here(folder, inputs, runtime);
    }
    let url = ObjectUrl::parse(&text)
        .map_err(|problem| Error::spec(text.as_ref(), format!("is a URL {problem}")))?;
    let verified = fetched_once(&url, |copy| verify_here(copy, inputs, runtime))?;
    Ok(Verified { folder: url.to_string(), ..verified })
}

fn verify_here(folder: &Path, inputs: bool, runtime: &Runtime) -> Result<Verified> {
    let manifest = Manifest::read(folder)?;
    let shown = folder.display().to_string();
    let found =
        list(folder).map_err(|error| Error::input(&shown, format!("cannot be read: {error}")))?;
    let mut differences = names(&manifest, &found);
    if found.contains_key(SUCCESS_FILE) {
        let problem = success_problem(folder, &manifest);
        differences.extend(problem.map(|problem| Difference::new(SUCCESS_FILE, problem)));
    }
    let check = Check { folder, found: &found, runtime };
    let tables = check.tables(&manifest)?;
    differences.extend(check.generator(&manifest)?);
    differences.extend(check.pages(&manifest)?);
    differences.extend(counts(&manifest, &tables));
    differences.extend(tables.into_iter().flat_map(|table| table.differences));
    let read = manifest.run.as_ref().map_or(&[][..], |run| &run.inputs[..]);
    if inputs {
        differences.extend(check.inputs(&manifest, read)?);
    }
    let previous = follow(&manifest, folder, &mut differences);
    differences.sort();
    Ok(Verified {
        folder: shown,
        command: manifest.command.clone(),
        run_id: manifest.run_id().map(String::from),
        files: manifest.files().count(),
        bytes: manifest.files().map(|(_, bytes, _)| bytes).fold(0, u64::saturating_add),
        rows: manifest.tables.iter().map(|table| table.rows).fold(0, u64::saturating_add),
        inputs: inputs.then_some(read.len()),
        previous,
        differences,
    })
}

/// Files that are missing, and those that the manifest does not list.
fn names(manifest: &Manifest, found: &BTreeMap<String, FolderEntry>) -> Vec<Difference> {
    let mut differences = Vec::new();
    let listed: BTreeMap<&str, u64> =
        manifest.files().map(|(path, bytes, _)| (path, bytes)).collect();
    for path in listed.keys().chain([&SUCCESS_FILE]) {
        if !found.contains_key(*path) {
            differences.push(Difference::new(path, "is missing"));
        }
    }
    for (name, kind) in found {
        if *kind == FolderEntry::Other {
            differences.push(Difference::new(name, "is not a regular file, and was not opened"));
        } else if !listed.contains_key(name.as_str()) && !manifest.expects(name) {
            differences.push(Difference::new(name, "is not listed in the manifest"));
        }
    }
    differences
}

/// A table's file that was read.
struct TableFile<'a> {
    entry: &'a TableEntry,
    /// Rows, by its footer.
    rows: Option<u64>,
    /// Rows with `sample` 0, in files of counterfactuals.
    first: Option<FirstSamples>,
    differences: Vec<Difference>,
}

/// A folder that is being checked.
struct Check<'a> {
    folder: &'a Path,
    found: &'a BTreeMap<String, FolderEntry>,
    runtime: &'a Runtime,
}

impl Check<'_> {
    /// Size and content of every table's file, and the rows in it.
    fn tables<'m>(&self, manifest: &'m Manifest) -> Result<Vec<TableFile<'m>>> {
        manifest.tables.par_iter().map(|entry| self.table(entry)).collect()
    }

    fn table<'m>(&self, entry: &'m TableEntry) -> Result<TableFile<'m>> {
        let mut table = TableFile { entry, rows: None, first: None, differences: Vec::new() };
        let listed = (entry.path.as_str(), entry.bytes, entry.sha256.as_str());
        let (file, differences) = self.file(listed)?;
        table.differences = differences;
        let Some(file) = file else { return Ok(table) };
        match rows(file, entry) {
            Ok((rows, first)) => {
                (table.rows, table.first) = (Some(rows), first);
                if rows != entry.rows {
                    let problem = format!("has {rows} rows, expected {}", entry.rows);
                    table.differences.push(Difference::new(&entry.path, problem));
                }
            }
            Err(problem) => table.differences.push(Difference::new(&entry.path, problem)),
        }
        Ok(table)
    }

    /// Holds a file against its size and hash; gives it, rewound, if it is there.
    fn file(
        &self,
        (path, bytes, sha256): (&str, u64, &str),
    ) -> Result<(Option<File>, Vec<Difference>)> {
        // Only what was seen to be a regular file below the folder, without a link on the way.
        if !matches!(self.found.get(path), Some(FolderEntry::File(_))) {
            return Ok((None, Vec::new()));
        }
        let unreadable = |error: std::io::Error| {
            (None, vec![Difference::new(path, format!("cannot be read: {error}"))])
        };
        let mut file = match open_unlinked(&self.folder.join(path)) {
            Ok((file, _)) => file,
            Err(error) => return Ok(unreadable(error)),
        };
        let hashed = sha256_read(&mut file, &|| self.runtime.check_signals())?;
        let (size, hash) = match hashed.and_then(|found| file.rewind().map(|()| found)) {
            Ok(found) => found,
            Err(error) => return Ok(unreadable(error)),
        };
        let mut differences = Vec::new();
        if size != bytes {
            differences.push(Difference::new(path, format!("has {size} bytes, expected {bytes}")));
        } else if hash != sha256 {
            let problem = format!("has the SHA-256 {hash}, expected {sha256}");
            differences.push(Difference::new(path, problem));
        }
        Ok((Some(file), differences))
    }

    /// Pages for people.
    fn pages(&self, manifest: &Manifest) -> Result<Vec<Difference>> {
        let pages = manifest.pages.iter();
        let found = pages.map(|page| Ok(self.file((&page.path, page.bytes, &page.sha256))?.1));
        Ok(found.collect::<Result<Vec<_>>>()?.concat())
    }

    /// The generator's files, and the weights that the run says it explained with.
    fn generator(&self, manifest: &Manifest) -> Result<Vec<Difference>> {
        let mut differences = Vec::new();
        for file in &manifest.generator {
            differences.extend(self.file((&file.path, file.bytes, &file.sha256))?.1);
        }
        let weights = format!("{GENERATOR}/{WEIGHTS_FILE}");
        let expected = manifest.run.as_ref().map(|run| run.generator.as_str()).unwrap_or_default();
        if expected.is_empty() {
            return Ok(differences);
        }
        let listed = manifest.generator.iter().find(|file| file.path == weights);
        match (listed, self.found.get(&weights)) {
            (Some(listed), _) if listed.sha256 != expected => {
                let problem = format!("is listed with another SHA-256 than the run's, {expected}");
                differences.push(Difference::new(&weights, problem));
            }
            (Some(_), _) => {}
            // Version 0.1.0 lists no generator files, but names these.
            (None, Some(FolderEntry::File(bytes))) => {
                differences.extend(self.file((&weights, *bytes, expected))?.1);
            }
            (None, _) => differences.push(Difference::new(&weights, "is missing")),
        }
        Ok(differences)
    }

    /// The files that the run read, where they stand. What they hold instead is not told.
    fn inputs(&self, manifest: &Manifest, files: &[InputFile]) -> Result<Vec<Difference>> {
        if manifest.run.is_none() {
            let problem = "has no fingerprints of the inputs: version 0.1.0 wrote none";
            return Ok(vec![Difference::new("manifest.json", problem)]);
        }
        let differences: Result<Vec<Option<Difference>>> =
            files.par_iter().map(|file| self.input(file)).collect();
        Ok(differences?.into_iter().flatten().collect())
    }

    fn input(&self, file: &InputFile) -> Result<Option<Difference>> {
        let problem = |text: String| Ok(Some(Difference::new(&file.path, text)));
        if let Some(etag) = &file.etag {
            return Ok(object_difference(file, etag)?.map(|text| Difference::new(&file.path, text)));
        }
        if file.sha256.is_empty() {
            return problem("has no SHA-256 in the manifest, of version 0.1.0".to_string());
        }
        let mut opened = match open_unlinked(Path::new(&file.path)) {
            Ok((opened, _)) => opened,
            Err(error) => return problem(format!("cannot be read: {error}")),
        };
        match sha256_read(&mut opened, &|| self.runtime.check_signals())? {
            Err(error) => problem(format!("cannot be read: {error}")),
            Ok((bytes, _)) if bytes != file.bytes => {
                problem(format!("has {bytes} bytes, expected {}", file.bytes))
            }
            Ok((_, sha256)) if sha256 != file.sha256 => {
                problem("has another content than the run read".to_string())
            }
            Ok(_) => Ok(None),
        }
    }
}

/// What is other about an object than when the run read it. Its store is opened as the environment says.
fn object_difference(file: &InputFile, etag: &str) -> Result<Option<String>> {
    let url = match ObjectUrl::parse(&file.path) {
        Ok(url) => url,
        Err(problem) => return Ok(Some(format!("is a URL {problem}"))),
    };
    let store = Stores::default().open(&url, Kind::Input)?;
    let found = wait(async move { store.find(url.key()).await })?;
    Ok(match found {
        None => Some("is missing".to_string()),
        Some(found) if found.bytes != file.bytes => {
            Some(format!("has {} bytes, expected {}", found.bytes, file.bytes))
        }
        Some(found) if found.etag.as_deref() != Some(etag) => {
            Some("has another content than the run read".to_string())
        }
        Some(_) => None,
    })
}

/// Rows of a table's file, and those with `sample` 0 where it is one of counterfactuals.
fn rows(file: File, entry: &TableEntry) -> Result<(u64, Option<FirstSamples>), String> {
    let counted = catch_unwind(AssertUnwindSafe(|| {
        let reader =
            ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| error.to_string())?;
        let rows = u64::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(0);
        let counterfactuals = of_table(entry, COUNTERFACTUALS);
        let first = counterfactuals.then(|| first_samples(reader, entry, rows)).transpose()?;
        Ok((rows, first))
    }));
    let broken = |problem: String| format!("is not a whole Parquet file: {problem}");
    counted.unwrap_or_else(|_| Err("its content cannot be decoded".to_string())).map_err(broken)
}

fn first_samples(
    reader: ParquetRecordBatchReaderBuilder<File>,
    entry: &TableEntry,
    rows: u64,
) -> Result<FirstSamples, String> {
    let folders = folder_values(&entry.path);
    let folder = |of: &str| folders.iter().find(|(name, _)| name == of).map(|(_, value)| value);
    let (sample, method) = (folder(SAMPLE), folder(METHOD).cloned().flatten());
    if sample.is_some_and(|sample| sample.as_deref() != Some("0")) {
        return Ok(FirstSamples::new());
    }
    let wanted = [SAMPLE, METHOD];
    let mask = ProjectionMask::columns(reader.parquet_schema(), wanted);
    let (mut found, mut left) = (FirstSamples::new(), rows);
    for batch in reader.with_projection(mask).build().map_err(|error| error.to_string())? {
        let batch = batch.map_err(|error| error.to_string())?;
        let samples = batch.column_by_name(SAMPLE);
        let samples = samples.and_then(|column| column.as_primitive_opt::<Int32Type>());
        if samples.is_none() && sample.is_none() {
            return Err(format!("there is no column `{SAMPLE}`"));
        }
        let methods = batch.column_by_name(METHOD).and_then(|of| of.as_string_opt::<i32>());
        for row in 0..batch.num_rows() {
            if samples.is_none_or(|samples| samples.value(row) == 0) {
                let method = methods.map(|of| of.value(row)).or(method.as_deref());
                *found.entry_ref(method.unwrap_or_default()).or_insert(0) += 1;
            }
        }
        left = left.saturating_sub(batch.num_rows() as u64);
    }
    // A file whose columns have all become folders has rows without values.
    if left > 0 {
        *found.entry(method.unwrap_or_default()).or_insert(0) += left;
    }
    Ok(found)
}

fn of_table(entry: &TableEntry, table: &str) -> bool {
    entry.path.strip_prefix(table).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether the counts of the summary add up, and are those of the tables.
fn counts(manifest: &Manifest, tables: &[TableFile<'_>]) -> Vec<Difference> {
    let counts = CountCheck { summary: &manifest.summary, tables };
    let differences = match manifest.command.as_str() {
        "train" => counts.of_training(),
        "score" => counts.of_rows("rows_scored", SCORES, counts.written(SCORES)),
        _ => counts.of_run(),
    };
    differences.into_iter().flatten().collect()
}

/// Rows with `sample` 0 by method.
type FirstSamples = hashbrown::HashMap<String, u64>;

/// A count by its name; none if it is missing or too large.
type NamedCount<'a> = (&'a str, Option<u64>);

/// What the summary counts, and what the tables hold.
struct CountCheck<'a> {
    summary: &'a Value,
    tables: &'a [TableFile<'a>],
}

impl CountCheck<'_> {
    fn count(&self, name: &str) -> Option<u64> {
        self.summary[name].as_u64()
    }

    /// Rows rejected, by reason or all together.
    fn rejected(&self) -> Option<u64> {
        match &self.summary["rows_rejected"] {
            Value::Object(reasons) => sum(reasons.values().map(Value::as_u64)),
            other => other.as_u64(),
        }
    }

    fn files(&self, table: &str) -> impl Iterator<Item = &TableFile<'_>> {
        self.tables.iter().filter(move |file| of_table(file.entry, table))
    }

    /// Rows of a table; none if a file of it cannot be read.
    fn written(&self, table: &str) -> Option<u64> {
        sum(self.files(table).map(|file| file.rows))
    }

    /// Rows with `sample` 0, of a method or of all.
    fn first_samples(&self, method: Option<&str>) -> Option<u64> {
        let of_file = |first: &FirstSamples| match method {
            Some(method) => first.get(method).copied().unwrap_or(0),
            None => first.values().sum(),
        };
        sum(self.files(COUNTERFACTUALS).map(|file| file.first.as_ref().map(of_file)))
    }

    /// Of runs that explain: every method has explained every row.
    fn of_run(&self) -> Vec<Option<Difference>> {
        const NAME: &str = "rows_explained";
        let listed = self.summary["methods"].as_array().into_iter().flatten();
        let methods: Vec<&str> = listed.filter_map(|of| of["method"].as_str()).collect();
        let published = methods.first().copied();
        let mut differences = self.of_rows(NAME, COUNTERFACTUALS, self.first_samples(published));
        for method in methods.iter().skip(1) {
            let name = format!("rows of `{method}` in `{COUNTERFACTUALS}`");
            let found = (name.as_str(), self.first_samples(Some(method)));
            differences.push(same((NAME, self.count(NAME)), found));
        }
        differences
    }

    /// Of runs that account for every row: `name` counts what became of those in scope that were not rejected.
    fn of_rows(&self, name: &str, table: &str, in_table: Option<u64>) -> Vec<Option<Difference>> {
        let parts = [self.count("rows_out_of_scope"), self.count(name), self.rejected()];
        let parts_name = format!("rows_out_of_scope + {name} + rows_rejected");
        let read = ("rows_read", self.count("rows_read"));
        let mut differences = vec![
            same(read, (&parts_name, sum(parts.into_iter()))),
            same((name, self.count(name)), (&format!("rows in `{table}`"), in_table)),
            same(("rows_rejected", self.rejected()), ("rows in `rejects`", self.written(REJECTS))),
        ];
        if table == COUNTERFACTUALS {
            let all = ("counterfactuals", self.count("counterfactuals"));
            differences.push(same(all, ("all rows in `counterfactuals`", self.written(table))));
        }
        differences
    }

    /// Rows kept aside are neither trained on nor rejected.
    fn of_training(&self) -> Vec<Option<Difference>> {
        let used = sum([self.count("rows_trained"), self.rejected()].into_iter());
        let (scope, read) = (self.count("rows_in_scope"), self.count("rows_read"));
        let within = |part: Option<u64>, whole: Option<u64>| {
            part.zip(whole).is_some_and(|(part, whole)| part <= whole)
        };
        let problem =
            "rows_trained + rows_rejected, rows_in_scope and rows_read do not go together";
        let fits = within(used, scope) && within(scope, read);
        vec![(!fits).then(|| Difference::new("counts", problem))]
    }
}

fn sum(mut counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    counts.try_fold(0u64, |sum, count| sum.checked_add(count?))
}

fn same((name, expected): NamedCount<'_>, (of, found): NamedCount<'_>) -> Option<Difference> {
    if expected.is_some() && expected == found {
        return None;
    }
    let text =
        |count: Option<u64>| count.map_or("not known".to_string(), |count| count.to_string());
    let problem = format!("{of}: {}, expected {} ({name})", text(found), text(expected));
    Some(Difference::new("counts", problem))
}
