//! From a run to the runs that it was compared with, night before night.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::verify::Difference;
use crate::output::{Manifest, PreviousFound, find_previous, success_problem};

/// Runs that are followed, at most: each links to the hash of the one before, so that there can be no circle, but a
/// chain of years need not be walked to its end.
const MOST_RUNS: usize = 4_000;

/// The runs before one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// Runs that are there.
    pub runs: usize,
    /// Why it goes no further, unless it begins there.
    pub end: Option<String>,
}

/// Follows the runs before one, in `folder`, as far as they are there. Their files are held against their manifests
/// by names and sizes: `overturn verify` of each reads them all.
pub(super) fn follow(
    manifest: &Manifest,
    folder: &Path,
    differences: &mut Vec<Difference>,
) -> Option<Chain> {
    let mut link = manifest.run.as_ref()?.previous.clone()?;
    let (mut chain, mut here): (Chain, PathBuf) = (Chain::default(), folder.to_path_buf());
    while chain.runs < MOST_RUNS {
        match find_previous(&link, &here) {
            PreviousFound::There(folder) => here = folder,
            PreviousFound::Gone(why) => return Some(Chain { end: Some(why), ..chain }),
            PreviousFound::Changed(problem) => {
                differences.push(Difference::new(&link.path, problem));
                return Some(Chain { end: Some(format!("`{}` is another", link.path)), ..chain });
            }
        }
        chain.runs += 1;
        let shown = here.display().to_string();
        let manifest = match Manifest::read(&here) {
            Ok(manifest) => manifest,
            Err(error) => {
                differences.push(Difference::new(&shown, error.to_string()));
                return Some(chain);
            }
        };
        let unproven =
            success_problem(&here, &manifest).map(|problem| format!("_SUCCESS {problem}"));
        let other = manifest.first_difference(&here).map(|what| format!("{what}, by its manifest"));
        let found = unproven.into_iter().chain(other);
        differences.extend(found.map(|problem| Difference::new(&shown, problem)));
        match manifest.run.and_then(|run| run.previous) {
            Some(previous) => link = previous,
            None => return Some(chain),
        }
    }
    Some(Chain { end: Some(format!("{MOST_RUNS} runs were followed")), ..chain })
}
