//! What `explain.method = "auto"` means for a job and its table.

use super::{ExplainJob, ExplainMethod, ExplainSpec, Job, Refine, Step, compare};

/// Rows of an actor's batch, where the job does not say.
const ACTOR_BATCH: usize = 128;
/// What searching for one counterfactual costs, in rows that pass through networks in training. A trained row takes
/// about 15 µs (the CPU seconds of `overturn train jobs/demo/train.toml` by its 4,000 + 4,000 batches of 128); a
/// searched one takes 0.3 ms with the demo's forest, and several times as much where many numbers must change
/// together. This many trained rows take 1.5 ms.
const PASSES_OF_A_SEARCH: u64 = 100;

impl Job {
    /// How counterfactuals are found when this many rows are in scope and the job brings no generator.
    ///
    /// `auto` compares what training would cost with what searching would: rows in all batches of the
    /// autoencoder's and the actor's steps, against `PASSES_OF_A_SEARCH` for each counterfactual that
    /// may be needed (rows in scope × `explain.samples`). The generator is preferred when both cost the
    /// same. Neither the clock nor the machine is asked: the same job and table give the same method.
    pub fn method_for(&self, rows: u64) -> ExplainMethod {
        match self.explain.method {
            ExplainMethod::Auto if self.searching_passes(rows) < self.training_passes() => {
                ExplainMethod::Search
            }
            ExplainMethod::Auto => ExplainMethod::Cfrl,
            given => given,
        }
    }

    fn training_passes(&self) -> u64 {
        let autoencoder = self.autoencoder.steps.saturating_mul(self.autoencoder.batch);
        let batch = self.train.method.batch.unwrap_or(ACTOR_BATCH);
        let actor = self.train.limits.max_steps.saturating_mul(batch);
        autoencoder.saturating_add(actor) as u64
    }

    fn searching_passes(&self, rows: u64) -> u64 {
        rows.saturating_mul(self.explain.samples as u64).saturating_mul(PASSES_OF_A_SEARCH)
    }
}

/// The method of a job as far as its keys decide: `auto` stays open only where a search could do the
/// same. `trains` says whether the job has keys about training, which ask for a generator.
pub(super) fn settled(spec: &ExplainSpec, trains: bool) -> ExplainMethod {
    if let Some(published) = compare::published(spec) {
        return published;
    }
    let full = spec.refine.is_none_or(|mode| mode == Refine::Full);
    let needed = [Step::Neighbours, Step::Reversion, Step::Shrink];
    let searches =
        full && spec.neighbours > 0 && !needed.iter().any(|step| spec.skip.contains(step));
    match spec.method {
        // A generator that is brought along says itself whether it has learnt anything.
        ExplainMethod::Auto if !searches || (trains && spec.generator.is_none()) => {
            ExplainMethod::Cfrl
        }
        method => method,
    }
}

impl ExplainJob {
    /// Why counterfactuals were searched without a generator, in words for the summary.
    pub fn searched(&self, rows: u64) -> String {
        let given = self.method == ExplainMethod::Search;
        let text = "counterfactuals were searched from training rows, without a generator";
        match self.generator {
            _ if given => format!("{text} (`explain.method = \"search\"`)"),
            Some(_) => format!("{text}: the one that `explain.generator` names has learnt nothing"),
            None => format!(
                "{text}: to train one would cost more than to search for {rows} rows; \
                 `explain.method = \"cfrl\"` trains one"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(lines: &str) -> Job {
        let text = format!(
            "[input]\nfeatures = 't'\nkey = 'id'\nschema = 'Cargo.toml'\n[predictor]\nkind = 'onnx'\n\
             model = 'Cargo.toml'\n[output]\ndir = 'out'\n{lines}"
        );
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("job.toml");
        Job::parse(&text, &file, &Default::default(), &Default::default()).expect("a job")
    }

    #[test]
    fn few_rows_are_searched_and_many_trained_for() {
        let job = job("");
        assert_eq!(job.explain.method, ExplainMethod::Auto);
        assert_eq!(job.method_for(16_639), ExplainMethod::Search);
        assert_eq!(job.method_for(16_640), ExplainMethod::Cfrl, "of equal cost");
        assert_eq!(job.method_for(u64::MAX), ExplainMethod::Cfrl);
    }

    #[test]
    fn what_the_job_says_counts() {
        for (lines, expected) in [
            ("[explain]\nmethod = 'cfrl'", ExplainMethod::Cfrl),
            ("[explain]\nmethod = 'generator'", ExplainMethod::Cfrl),
            ("[explain]\ncompare = ['lore', 'cfrl']", ExplainMethod::Lore),
            ("[explain]\nmethod = 'search'", ExplainMethod::Search),
            ("[explain]\nmethod = 'nearest'", ExplainMethod::Nearest),
            ("[explain]\nrefine = 'off'", ExplainMethod::Cfrl),
            ("[explain]\nneighbours = 0", ExplainMethod::Cfrl),
            ("[explain]\nskip = ['shrink']", ExplainMethod::Cfrl),
            ("[explain]\nskip = ['certificate']", ExplainMethod::Search),
            ("[train]\nmax_steps = 5001", ExplainMethod::Cfrl),
            ("[train]\nfrom = 'src'", ExplainMethod::Cfrl),
            ("[autoencoder]\nkind = 'never'", ExplainMethod::Cfrl),
            ("[explain]\nsamples = 20", ExplainMethod::Search),
            ("[explain]\nsamples = 200", ExplainMethod::Cfrl),
        ] {
            assert_eq!(job(lines).method_for(100), expected, "{lines}");
        }
    }

    #[test]
    fn a_generator_at_hand_is_asked_if_it_has_learnt() {
        let job = job("[explain]\ngenerator = 'src'\n[train]\nmax_steps = 9");
        assert_eq!(job.explain.method.with_generator(true), ExplainMethod::Cfrl);
        assert_eq!(job.explain.method.with_generator(false), ExplainMethod::Search);
        assert_eq!(ExplainMethod::Nearest.with_generator(true), ExplainMethod::Nearest);
    }
}
