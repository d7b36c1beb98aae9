//! The rules as the contract states them: each tag `[R:...]` with its sentence, read from the comments of the `.proto`
//! files that this binary was built with.
//!
//! In: the descriptors of the contract, which carry its comments. Out: sentences by tag, and whether the contract
//! contains given words.

mod element;

use std::{collections::BTreeMap, sync::LazyLock};

use cloudprovider_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// A sentence of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// The file that contains it.
    pub file: String,
    /// What it describes, for example `Instance.addresses`.
    pub element: String,
    /// The sentence, without tags.
    pub text: String,
}

struct Contract {
    rules: BTreeMap<String, Vec<Sentence>>,
    /// All comments, with single spaces.
    comments: String,
}

static CONTRACT: LazyLock<Contract> = LazyLock::new(read);

/// All tags.
pub fn tags() -> impl Iterator<Item = &'static str> {
    CONTRACT.rules.keys().map(String::as_str)
}

/// The sentences under a tag; most tags have one.
pub fn sentences(tag: &str) -> &'static [Sentence] {
    CONTRACT.rules.get(tag).map_or(&[], Vec::as_slice)
}

/// Whether the contract contains these words.
pub fn says(words: &str) -> bool {
    CONTRACT.comments.contains(&single_blanks(words))
}

fn read() -> Contract {
    // This crate's own build creates the bytes; tests show that they decode.
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
    let mut contract = Contract { rules: BTreeMap::new(), comments: String::new() };
    for file in set.file.iter().filter(|file| file.package().starts_with("ccm.")) {
        for (element, comment) in comments(file) {
            let comment = single_blanks(&comment);
            for (tag, text) in tagged(&comment) {
                let file = format!("proto/{}", file.name());
                let sentence = Sentence { file, element: element.clone(), text };
                contract.rules.entry(tag).or_default().push(sentence);
            }
            contract.comments.push_str(&comment);
            contract.comments.push('\n');
        }
    }
    contract
}

/// Each comment, and what it describes.
fn comments(file: &FileDescriptorProto) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for location in file.source_code_info.iter().flat_map(|info| &info.location) {
        let element = element::name(file, &location.path);
        for comment in location.leading_detached_comments.iter().chain(&location.leading_comments) {
            found.push((element.clone(), comment.clone()));
        }
    }
    found
}

fn single_blanks(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Each tag of a comment with the sentence that it is in or follows.
fn tagged(comment: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (at, _) in comment.match_indices("[R:") {
        let Some(length) = comment[at..].find(']') else { continue };
        let tag = comment[at + 3..at + length].to_owned();
        found.push((tag, sentence(comment, at)));
    }
    found
}

/// Where the last sentence of a text begins.
fn begin(text: &str) -> usize {
    let ends = [". ", ".] ", "] ", "| "];
    ends.iter().filter_map(|end| text.rfind(end).map(|at| at + end.len())).max().unwrap_or(0)
}

/// The sentence around a position. A tag is within its sentence, or just after the full stop.
fn sentence(comment: &str, at: usize) -> String {
    let before = comment[..at].trim_end();
    let body = before.strip_suffix('.').unwrap_or(before);
    let mut start = begin(body);
    if body[start..].split_whitespace().count() < 3 {
        // "Required." alone says nothing: it belongs to the previous sentence.
        start = begin(body[..start].trim_end().trim_end_matches('.'));
    }
    let text = &comment[start..at];
    let rest = if before.ends_with('.') {
        ""
    } else {
        let behind = comment[at..].split_once(']').map_or("", |(_, behind)| behind);
        behind.find(". ").map_or(behind, |end| &behind[..=end])
    };
    let mut words = String::new();
    for (number, part) in format!("{text}{rest}").split("[R:").enumerate() {
        let part = if number == 0 { part } else { part.split_once(']').map_or("", |(_, part)| part) };
        words.push_str(part);
    }
    [".", ",", ":", ";"]
        .iter()
        .fold(single_blanks(&words), |words, mark| words.replace(&format!(" {mark}"), mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(tag: &str) -> &'static str {
        &sentences(tag)[0].text
    }

    #[test]
    fn every_tag_of_the_files_has_its_sentence() {
        assert!(tags().count() >= 52, "{:?}", tags().collect::<Vec<_>>());
        for tag in tags() {
            for sentence in sentences(tag) {
                assert!(sentence.text.split(' ').count() > 2, "{tag}: {sentence:?}");
                assert!(!sentence.text.contains("[R:"), "{tag}: {sentence:?}");
            }
        }
        assert_eq!(sentences("batch-keys").len(), 5);
    }

    #[test]
    fn a_sentence_is_cut_out_whole() {
        assert_eq!(only("discovery-no-cloud"), "It MUST NOT call the cloud.");
        assert_eq!(
            only("batch-keys"),
            "The response MUST contain each key exactly once and no other key; the order is free."
        );
        assert_eq!(
            only("advertised-works"),
            "An RPC that needs a capability MUST NOT answer UNIMPLEMENTED once the capability is advertised; \
             otherwise the host never calls it."
        );
        assert!(
            only("discovery-name").starts_with("Name of the provider: a DNS subdomain of at most 63 bytes")
        );
        let page_size = &sentences("page-size")[0];
        assert_eq!(page_size.file, "proto/ccm/cloudprovider/v1alpha1/instances.proto");
        assert_eq!(page_size.element, "ListInstancesResponse.instances");
        assert_eq!(sentences("read-through")[0].element, "BatchGetInstancesRequest.max_staleness");
        assert_eq!(sentences("watch-started")[0].element, "Instances.WatchInstances");
    }

    #[test]
    fn words_are_found_whatever_the_line_breaks() {
        assert!(says("| too many queries | INVALID_ARGUMENT | BATCH_TOO_LARGE"));
        assert!(says("a field that is not wanted is empty"));
        assert!(!says("words that nobody wrote"));
    }
}
