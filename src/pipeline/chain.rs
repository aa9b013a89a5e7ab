//! From a run to the runs that it was compared with, night before night.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::verify::Difference;
use crate::audit::page::PastRun;
use crate::output::{Manifest, PreviousFound, PreviousRun, find_previous, success_problem};

/// Runs that are followed, at most: each links to the hash of the one before, so that there can be no circle, but a
/// chain of years need not be walked to its end.
const MOST_RUNS: usize = 4_000;

/// Runs that a page tells of, at most: two months of nights.
const MOST_TOLD: usize = 60;
/// Characters of a run's name on a page.
const SHOWN: usize = 8;

/// The figures of the runs before one that is about to stand in `folder`, as far as they are there, and its own; the
/// oldest first. Nothing if it was compared with none. Also why the chain goes no further, if it does not begin there.
pub(super) fn past(manifest: &Manifest, folder: &Path) -> (Vec<PastRun>, Option<String>) {
    let Some(run) = &manifest.run else { return (Vec::new(), None) };
    let mut runs = vec![(named(folder), run.run_id.clone(), manifest.clone())];
    let (mut link, mut here, mut end) = (run.previous.clone(), folder.to_path_buf(), None);
    while let Some(previous) = link {
        if runs.len() == MOST_TOLD {
            end = Some(format!("{MOST_TOLD} runs are told"));
            break;
        }
        let manifest = match read(&previous, &here) {
            Ok((found, manifest)) => {
                here = found;
                manifest
            }
            Err(why) => {
                end = Some(why);
                break;
            }
        };
        link = manifest.run.as_ref().and_then(|run| run.previous.clone());
        runs.push((named(Path::new(&previous.path)), previous.run_id, manifest));
    }
    if runs.len() == 1 {
        return (Vec::new(), None);
    }
    // Nights that take each other's place have one folder's name.
    let named_apart = runs.iter().any(|(name, ..)| *name != runs[0].0);
    let label = |name: &str, id: &str| {
        let id: String = id.chars().take(SHOWN).collect();
        if named_apart { format!("{name} ({id})") } else { id }
    };
    let told = runs.iter().rev();
    (told.map(|(name, id, manifest)| PastRun::of(label(name, id), manifest)).collect(), end)
}

/// The run before another, and where it is.
fn read(link: &PreviousRun, here: &Path) -> Result<(PathBuf, Manifest), String> {
    let folder = match find_previous(link, here) {
        PreviousFound::There(folder) => folder,
        PreviousFound::Gone(why) => return Err(why),
        PreviousFound::Changed(why) => return Err(format!("`{}` {why}", link.path)),
    };
    let manifest = Manifest::read(&folder).map_err(|error| error.to_string())?;
    Ok((folder, manifest))
}

fn named(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

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
