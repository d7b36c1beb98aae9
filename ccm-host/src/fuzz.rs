//! What is promised of whatever strangers write, as functions of bytes for a fuzzer.
//!
//! In: any bytes. Out: a panic that says which promise was broken. Each function stands beside the code that makes the promise;
//! `fuzz/` at the root of the checkout makes a target of each, and its corpus is replayed here.

use std::{env, fs, process};

use crate::manager::flags;
pub use ccm_cloud::fuzz::answers;
pub use ccm_kube::cache::fuzz::objects;
use ccm_kube::{
    Keep, KeySet, Slim as _,
    keep::Interner,
    service::{SOURCE_RANGES, Service, source_ranges},
};
pub use ccm_volumes::fuzz::reviews;

/// The source ranges of a Service, one a line, in its spec or (first byte) in its annotation: networks in order, or an
/// error of bounded length.
pub fn ranges(data: &[u8]) {
    let Some((place, text)) = data.split_first() else { return };
    let Ok(text) = str::from_utf8(text) else { return };
    let read = |text: &str| {
        let json = match place % 2 {
            0 => serde_json::json!({"metadata": {"annotations": {SOURCE_RANGES: text}}}),
            _ => {
                serde_json::json!({"spec": {"loadBalancerSourceRanges": text.split(',').collect::<Vec<_>>()}})
            }
        };
        let wire = serde_json::from_value(json).map_err(|error| error.to_string())?;
        let keep = Keep { labels: KeySet::default(), annotations: KeySet::all() };
        source_ranges(&Service::project(wire, &keep, &Interner::default()))
    };
    match read(text) {
        Ok(ranges) => {
            assert!(ranges.is_sorted_by(|one, next| one < next), "{ranges:?}");
            assert!(ranges.iter().all(|range| range.trunc() == *range), "{ranges:?}");
            let written: Vec<_> = ranges.iter().map(ToString::to_string).collect();
            assert_eq!(read(&written.join(",")), Ok(ranges), "read again");
        }
        Err(error) => assert!(error.len() < 4096, "{} bytes of error", error.len()),
    }
}

/// A command line, one word a line, or (first byte) a file for `--config`: settings, or mistakes that each name what was
/// given and what to do.
pub fn words(data: &[u8]) {
    let Some((place, text)) = data.split_first() else { return };
    let Ok(text) = str::from_utf8(text) else { return };
    let parsed = if place % 2 == 0 {
        // A file of any name may be a device without end.
        flags::parse(text.lines().filter(|word| !word.contains("config")))
    } else {
        let path = env::temp_dir().join(format!("ccm-host-fuzz-{}.yaml", process::id()));
        let parsed = fs::write(&path, text).map(|()| flags::parse([format!("--config={}", path.display())]));
        let _gone_already = fs::remove_file(&path);
        let Ok(parsed) = parsed else { return };
        parsed
    };
    for mistake in parsed.err().unwrap_or_default() {
        assert!(!mistake.problem.is_empty() && !mistake.remedy.is_empty(), "{mistake:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    type Target = fn(&[u8]);

    /// Each input of the corpus, cut short, and with a byte changed, as a first round of the fuzzer would.
    #[test]
    fn what_the_fuzzer_found_holds() {
        let targets: [(&str, Target); 5] = [
            ("answers", answers),
            ("objects", objects),
            ("ranges", ranges),
            ("reviews", reviews),
            ("words", words),
        ];
        for (name, target) in targets {
            let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
            let mut random = fastrand::Rng::with_seed(1);
            let mut inputs = 0;
            for file in fs::read_dir(corpus).unwrap() {
                let mut input = fs::read(file.unwrap().path()).unwrap();
                target(&input);
                for _ in 0..20 {
                    target(&input[..random.usize(..=input.len())]);
                }
                for _ in 0..20 {
                    let Some(byte) = random.choice(input.iter_mut()) else { break };
                    *byte = random.u8(..);
                    target(&input);
                }
                inputs += 1;
            }
            assert!(inputs > 0, "{name} has no corpus");
        }
    }
}
