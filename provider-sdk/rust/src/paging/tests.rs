use serde_json::Value;

use super::*;

fn request(cluster: &str, page_token: &str, page_size: i32) -> ListInstancesRequest {
    ListInstancesRequest {
        cluster: Some(ClusterRef { uid: cluster.to_owned(), name: String::new() }),
        page_token: page_token.to_owned(),
        page_size,
        ..Default::default()
    }
}

/// `$3000` is a text of 3000 bytes.
fn spelled(text: &str) -> String {
    match text.strip_prefix('$') {
        Some(length) => "x".repeat(length.parse().unwrap()),
        None => text.to_owned(),
    }
}

/// [R:page-token-refused]
#[test]
fn tokens_stand_for_those_of_clouds_as_in_every_sdk() {
    let rows: Vec<Value> =
        serde_json::from_str(include_str!("../../../../proto/vectors/tokens.json")).unwrap();
    assert!(!rows.is_empty());
    for row in &rows {
        let Some(position) = row["position"].as_str().map(spelled) else {
            let refused = open(&request("c-1", row["token"].as_str().unwrap(), 0)).unwrap_err();
            assert_eq!(refused.reason().wire_name(), row["reason"].as_str().unwrap(), "{row}");
            continue;
        };
        match seal(&request("c-1", "", 0), &position) {
            Ok(token) => {
                assert!(row["token"].as_str().is_none_or(|wanted| wanted == token), "{row}: {token}");
                assert_eq!(open(&request("c-1", &token, 0)).unwrap(), position, "{row}");
            }
            Err(_) => assert!(row["why"].as_str().unwrap().contains("fits into no token"), "{row}"),
        }
    }
}

fn walk(items: &str, size: i32) -> Vec<String> {
    let (mut pages, mut token) = (Vec::new(), String::new());
    loop {
        let (page, next) = page(&request("c", &token, size), items.chars(), char::to_string).unwrap();
        pages.push(page.iter().collect());
        token = next;
        if token.is_empty() {
            return pages;
        }
    }
}

/// [R:page-walk-ends]
#[test]
fn a_walk_sees_everything_once_and_ends() {
    for (items, size, pages) in [
        ("", 2, vec![""]),
        ("a", 2, vec!["a"]),
        ("ba", 2, vec!["ab"]),
        ("cab", 2, vec!["ab", "c"]),
        ("dacb", 0, vec!["abcd"]),
        ("eadbc", 1, vec!["a", "b", "c", "d", "e"]),
    ] {
        assert_eq!(walk(items, size), pages, "{items}");
    }
}

#[test]
fn what_comes_and_goes_during_a_walk_costs_the_others_nothing() {
    let turn = |token: &str, items: &[&str]| {
        let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
        page(&request("c", token, 2), items, String::clone).unwrap()
    };
    let (first, token) = turn("", &["a", "b", "c", "d"]);
    let (second, _) = turn(&token, &["a", "aa", "c", "d"]);
    assert_eq!((first.join(""), second.join("")), ("ab".to_owned(), "cd".to_owned()));
    assert_eq!(turn(&token, &["c", "d"]).0.join(""), "cd", "a token may be used again");
}
