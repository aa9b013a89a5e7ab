//! 11: what the run was made of, how to check and repeat it, and what must not be read into it.

use super::super::blocks::Block;
use super::super::words::{clipped, count, counted};
use super::SectionInput;
use crate::output::InputFile;

/// Input files that are listed, at most.
const MOST_INPUTS: usize = 12;

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    let mut blocks = vec![
        Block::Text("Hashes are SHA-256. Equal fingerprints mean equal tables.".to_string()),
        Block::Terms(identity(source)),
        Block::Heading("Tables that were read".to_string()),
        Block::Terms(source.context.run.inputs.iter().take(MOST_INPUTS).map(input).collect()),
    ];
    let more = source.context.run.inputs.len().saturating_sub(MOST_INPUTS);
    if more > 0 {
        let text = format!("{} more in manifest.json.", counted(more as u64, "file"));
        blocks.push(Block::Note(text));
    }
    blocks.push(Block::Command {
        what: "Check that nothing was changed since, from the folder above the run's:".to_string(),
        text: "overturn verify RUN_FOLDER --inputs".to_string(),
    });
    blocks.push(Block::Command {
        what: "Do it again (the job as resolved is in manifest.json):".to_string(),
        text: format!("overturn {} JOB", clipped(&source.context.command, 20)),
    });
    blocks.push(Block::Heading("Limits, and what is not claimed".to_string()));
    blocks.push(Block::Items(limits(source)));
    blocks
}

fn identity(source: &SectionInput<'_>) -> Vec<(String, String)> {
    let context = source.context;
    let run = &context.run;
    let mut list = vec![
        ("Run", run.run_id.clone()),
        ("Fingerprint", run.fingerprint.clone()),
        ("Model", run.model.clone()),
        ("Models beside it", run.robust.join(", ")),
        ("Feature schema", run.schema.clone()),
        ("Generator", run.generator.clone()),
        ("Seed, device", format!("{}, {}", run.seed, run.device)),
    ];
    if let Some(previous) = &run.previous {
        list.push(("Manifest of the run before", previous.sha256.clone()));
    }
    let versions: Vec<String> =
        context.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    list.push(("Versions", versions.join(" · ")));
    let known = list.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| (name.to_string(), value)).collect()
}

fn input(file: &InputFile) -> (String, String) {
    let InputFile { path, bytes, rows, sha256, etag, .. } = file;
    let size = format!("{}, {} bytes", counted(*rows, "row"), count(*bytes));
    let hash = match etag {
        Some(etag) => format!("ETag {}", clipped(etag, 200)),
        None if sha256.is_empty() => "no hash was kept".to_string(),
        None => sha256.clone(),
    };
    (clipped(path, 200), format!("{size}, {hash}"))
}

fn limits(source: &SectionInput<'_>) -> Vec<String> {
    let least = source.context.min_cell;
    let small = format!(
        "Groups with fewer than {least} refused rows are suppressed. That nothing is shown of them does not mean that \
         nothing is wrong."
    );
    let list = [
        "A change says what the model would decide about another row. It does not say what would happen in the world \
         if somebody changed, nor that the change is the cause.",
        "Changes come from a search that stops where none of its steps helps: there may be cheaper ones. “Open” means \
         not found, never impossible; only “shut out” is proven. A difference between groups may be the search's.",
        "Cost is the search's yardstick. It is not money, time or hardship, and the same change can be easy for one \
         person and impossible for another.",
        "A difference between groups does not prove discrimination, and its absence does not prove fairness: groups \
         are told one attribute at a time, as the columns of the table name them.",
        "Rows that were set aside are not in any group's figures.",
        "Intervals say how far figures of as many rows may be off by chance, 95 times in 100. They know nothing of \
         wrong data, of people who never applied, or of a model that is wrong.",
        "Validity holds for this model. Another training of it may decide otherwise.",
        "Nothing here is a notice of adverse action or legal advice.",
    ];
    let mut list: Vec<String> = list.map(String::from).into();
    list.insert(5, small);
    list
}
