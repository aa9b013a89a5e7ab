//! What changed between two runs beside their rows, told by hashes and settings.

use serde_json::Value;

use crate::artefact::GENERATOR_FILE;
use crate::output::{FileEntry, Manifest, RunProvenance};

/// What changed between two runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Causes {
    /// The model, or how it is asked.
    pub model: bool,
    /// What of job, feature schema, seed, device, version or a generator that the job brings; in words.
    pub configuration: Vec<String>,
    /// The generator's files.
    pub generator: bool,
}

/// Sections of a job that decide which counterfactual a row gets.
const SECTIONS: [&str; 4] = ["target", "autoencoder", "train", "explain"];
/// Settings in them, and in `[predictor]`, that change no counterfactual, or say where something is whose content has
/// a hash of its own.
const WITHOUT_EFFECT: [&str; 14] = [
    "/explain/generator",
    "/explain/unit_rows",
    "/train/from",
    "/predictor/repeatable",
    "/predictor/kind/Onnx/model",
    "/predictor/kind/Onnx/batch_limit",
    "/predictor/kind/Subprocess/command",
    "/predictor/kind/Subprocess/folder",
    "/predictor/kind/Subprocess/workers",
    "/predictor/kind/Subprocess/start_limit",
    "/predictor/kind/Subprocess/batch_limit",
    "/predictor/kind/Subprocess/retries",
    "/predictor/kind/Subprocess/sandbox",
    "/predictor/kind/Subprocess/limits",
];

/// A run as far as its causes are concerned.
#[derive(Debug, Clone, Copy)]
pub struct RunState<'a> {
    /// Hashes.
    pub provenance: &'a RunProvenance,
    /// The job as resolved.
    pub job: &'a Value,
    /// Versions of the program and of what it stands on.
    pub versions: &'a Value,
    /// The generator's files.
    pub generator: &'a [FileEntry],
}

impl<'a> RunState<'a> {
    /// That of a published run.
    pub fn of(manifest: &'a Manifest) -> Option<RunState<'a>> {
        let provenance = manifest.run.as_ref()?;
        let Manifest { job, versions, generator, .. } = manifest;
        Some(RunState { provenance, job, versions, generator })
    }

    /// Networks and training rows. The description beside them says also when and of what they were made.
    fn learnt(&self) -> Vec<&str> {
        let learnt = self.generator.iter().filter(|file| !file.path.ends_with(GENERATOR_FILE));
        learnt.map(|file| file.sha256.as_str()).collect()
    }
}

impl Causes {
    /// What is another in `new`.
    pub fn between(old: RunState<'_>, new: RunState<'_>) -> Causes {
        let (before, now) = (settings(old.job), settings(new.job));
        let brought = !new.job["explain"]["generator"].is_null();
        let generator = old.learnt() != new.learnt();
        let mut configuration: Vec<String> = SECTIONS
            .into_iter()
            .filter(|section| before[*section] != now[*section])
            .map(|section| format!("`[{section}]`"))
            .collect();
        let others = [
            ("feature schema", old.provenance.schema != new.provenance.schema),
            ("seed", old.provenance.seed != new.provenance.seed),
            ("device", old.provenance.device != new.provenance.device),
            ("version of overturn or of a library", old.versions != new.versions),
            ("generator", brought && generator),
            ("`[robust]`", other_robust((&old, &new), &before, &now)),
        ];
        configuration.extend(others.into_iter().filter(|of| of.1).map(|of| of.0.to_string()));
        let model =
            old.provenance.model != new.provenance.model || before["predictor"] != now["predictor"];
        Causes { model, configuration, generator }
    }

    /// The cause of what became of a row: whether it is as it was, and whether the decision about it is.
    pub fn of(&self, same_row: bool, same_decision: bool) -> &'static str {
        match (!same_row, self.model, !self.configuration.is_empty()) {
            (true, true, true) => "row+model+configuration",
            (true, true, false) => "row+model",
            (true, false, true) => "row+configuration",
            (true, false, false) => "row",
            (false, true, true) => "model+configuration",
            (false, true, false) => "model",
            (false, false, true) => "configuration",
            // A generator that a run trains is made of its table, model and job: another one is no cause beside them.
            // Only a score table decides otherwise where nothing else is another: its decisions are a model's too.
            (false, false, false) if !same_decision => "model",
            (false, false, false) if self.generator => "generator",
            (false, false, false) => "none",
        }
    }
}

/// Whether other models than before stand beside the predictor, or another share of them must agree.
fn other_robust((old, new): (&RunState<'_>, &RunState<'_>), before: &Value, now: &Value) -> bool {
    let share = |job: &Value| job.pointer("/robust/share").cloned();
    let shares = !new.provenance.robust.is_empty() && share(before) != share(now);
    old.provenance.robust != new.provenance.robust || shares
}

/// A job's settings without those that have no effect.
fn settings(job: &Value) -> Value {
    let mut job = job.clone();
    for pointer in WITHOUT_EFFECT {
        if let Some(setting) = job.pointer_mut(pointer) {
            *setting = Value::Null;
        }
    }
    job
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn provenance(model: &str) -> RunProvenance {
        RunProvenance {
            versions: Vec::new(),
            run_id: "a".to_string(),
            fingerprint: "a".to_string(),
            inputs: Vec::new(),
            model: model.to_string(),
            robust: Vec::new(),
            schema: "s".to_string(),
            generator: String::new(),
            seed: 0,
            device: "cpu".to_string(),
            previous: None,
        }
    }

    fn job(model: &str, samples: u32) -> Value {
        json!({ "predictor": { "kind": { "Onnx": { "model": model, "rename": {} } } },
            "explain": { "generator": null, "samples": samples }, "output": { "dir": model } })
    }

    fn files(weights: &str) -> Vec<FileEntry> {
        let file = |path: &str, sha256: &str| FileEntry {
            path: format!("generator/{path}"),
            bytes: 1,
            sha256: sha256.to_string(),
        };
        vec![file(GENERATOR_FILE, &format!("of {weights}, today")), file("weights", weights)]
    }

    #[test]
    fn causes_are_told_by_hashes_and_settings_not_by_places() {
        let versions = json!({ "overturn": "1" });
        let between = |one: (&str, &Value, &str), two: (&str, &Value, &str)| {
            let (old, new) = (provenance(one.0), provenance(two.0));
            let (before, now) = (files(one.2), files(two.2));
            let versions = &versions;
            Causes::between(
                RunState { provenance: &old, job: one.1, versions, generator: &before },
                RunState { provenance: &new, job: two.1, versions, generator: &now },
            )
        };
        let of_causes = |causes: &Causes| (causes.of(true, true), causes.of(false, true));
        let monday = job("monday.onnx", 1);
        let old = ("m", &monday, "g");
        let same = between(old, ("m", &job("tuesday.onnx", 1), "g"));
        assert_eq!(of_causes(&same), ("none", "row"));
        assert_eq!(same.of(true, false), "model", "by a score table");
        assert_eq!(of_causes(&between(old, ("n", &monday, "h"))), ("model", "row+model"));
        assert_eq!(of_causes(&between(old, ("m", &monday, "h"))), ("generator", "row"));
        let more = between(old, ("m", &job("monday.onnx", 2), "h"));
        assert_eq!(more.configuration, ["`[explain]`"]);
        assert_eq!(of_causes(&more), ("configuration", "row+configuration"));
        let mut brought = monday.clone();
        brought["explain"]["generator"] = json!("b");
        let other = between(("m", &brought, "g"), ("m", &brought, "h"));
        assert_eq!(other.configuration, ["generator"]);
        let mut beside = provenance("m");
        beside.robust = vec!["r".to_string()];
        let (old, generator) = (provenance("m"), files("g"));
        let state = |provenance| RunState {
            provenance,
            job: &monday,
            versions: &versions,
            generator: &generator,
        };
        assert_eq!(Causes::between(state(&old), state(&beside)).configuration, ["`[robust]`"]);
        let old = ("m", &monday, "g");
        let mut renamed = monday.clone();
        renamed["predictor"]["kind"]["Onnx"]["rename"] = json!({ "a": "b" });
        assert_eq!(of_causes(&between(old, ("m", &renamed, "g"))).0, "model");
    }
}
