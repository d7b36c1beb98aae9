#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ccm_host::fuzz::reviews(data));
