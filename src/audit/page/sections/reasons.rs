//! 7: candidate reasons of decisions, where the job asks for them.

use super::super::blocks::Block;
use super::Source;

pub(super) fn blocks(_: &Source<'_>) -> Vec<Block> {
    let text = "Candidate reasons were not computed (audit.reasons is off). The changes in section 5 are not reasons: \
                they name what is cheap and allowed to change, while a notice of adverse action must name the \
                principal factors of the decision, whether they can be changed or not.";
    vec![Block::Text(text.to_string())]
}
