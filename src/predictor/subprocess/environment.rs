//! The environment of a scorer program: a list of what programs commonly need, and what the job adds.
//! Everything else stays here, since credentials are often among it.

use std::ffi::OsString;

/// What every scorer gets: where programs and libraries are, language, and threads.
const USUAL: [&str; 29] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHON*",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "R_HOME",
    "R_LIBS*",
    "JAVA_HOME",
    "JULIA_DEPOT_PATH",
    "JULIA_PROJECT",
    "OMP_*",
    "GOMP_*",
    "KMP_*",
    "OPENBLAS_*",
    "MKL_*",
    "BLIS_*",
    "NUMEXPR_*",
    "VECLIB_*",
    "LOKY_MAX_CPU_COUNT",
    "CUDA_VISIBLE_DEVICES",
];

/// What a scorer gets of these variables, if the job lists such entries.
pub(super) fn allowed(
    variables: impl Iterator<Item = (OsString, OsString)>,
    listed: &[String],
) -> Vec<(OsString, OsString)> {
    let names: Vec<&str> = USUAL.into_iter().chain(listed.iter().map(String::as_str)).collect();
    let passes = |name: &str| names.iter().any(|pattern| fits(pattern, name));
    let mut allowed: Vec<_> =
        variables.filter(|(name, _)| name.to_str().is_some_and(passes)).collect();
    for (name, value) in listed.iter().filter_map(|entry| entry.split_once('=')) {
        allowed.retain(|(found, _)| found != name);
        allowed.push((name.into(), value.into()));
    }
    allowed
}

/// Names that the job lists and that are not set.
pub(super) fn missing(listed: &[String]) -> Vec<&str> {
    let plain = listed.iter().filter(|entry| !entry.contains(['=', '*'])).map(String::as_str);
    plain.filter(|name| std::env::var_os(name).is_none()).collect()
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        _ if pattern.contains('=') => false,
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(listed: &[&str]) -> Vec<String> {
        let variables = ["PATH", "LC_ALL", "AWS_SECRET_ACCESS_KEY", "MODEL_A", "MODEL_B", "LCX"];
        let variables = variables.into_iter().map(|name| (name.into(), "here".into()));
        let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
        let text = |(name, value): (OsString, OsString)| {
            format!("{}={}", name.to_string_lossy(), value.to_string_lossy())
        };
        allowed(variables, &listed).into_iter().map(text).collect()
    }

    #[test]
    fn only_what_is_usual_or_listed_passes() {
        assert_eq!(names(&[]), ["PATH=here", "LC_ALL=here"]);
        assert_eq!(
            names(&["MODEL_*", "AWS_SECRET_ACCESS_KEY"]),
            ["PATH", "LC_ALL", "AWS_SECRET_ACCESS_KEY", "MODEL_A", "MODEL_B"]
                .map(|name| format!("{name}=here"))
        );
        assert_eq!(names(&["PATH=there"]), ["LC_ALL=here", "PATH=there"]);
        assert_eq!(names(&["*"]).len(), 6);
    }
}
