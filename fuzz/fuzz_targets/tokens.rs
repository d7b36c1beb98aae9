//! Page tokens: the host sends a provider what it once got, or anything. What is none of this list is refused, and a token
//! leads where its cloud's own token led.

#![no_main]

use cloudprovider_sdk::{paging, proto::ListRoutesRequest};

fn asked(token: &str) -> ListRoutesRequest {
    ListRoutesRequest { page_token: token.to_owned(), ..Default::default() }
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Some(position) = paging::open(&asked(text)).ok().filter(|position| !position.is_empty()) {
        assert_eq!(paging::seal(&asked(""), &position).as_deref().ok(), Some(text));
    }
    if let Ok(token) = paging::seal(&asked(""), text) {
        assert!(token.len() <= 8 << 10, "a token of {} bytes", token.len());
        assert_eq!(paging::open(&asked(&token)).as_deref().ok(), Some(text));
    }
});
