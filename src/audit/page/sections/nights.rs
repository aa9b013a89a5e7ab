//! 8: what became of yesterday's answers, where an earlier run is named.

use super::super::blocks::{Block, Finding, Tone};
use super::Source;

pub(super) fn blocks(_: &Source<'_>) -> Vec<Block> {
    let text = "No earlier run was compared (audit.previous is not set), so nothing is said about whether answers last.";
    vec![Block::Text(text.to_string())]
}

/// What changed, for the verdict.
pub(super) fn finding(_: &Source<'_>) -> Finding {
    Finding {
        tone: Tone::Plain,
        title: "Since the last run: not compared".to_string(),
        text: "No earlier run is named (audit.previous).".to_string(),
    }
}
