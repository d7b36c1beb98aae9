//! A watch on its way out: each frame met by the faults of its call.

use http::Response as HttpResponse;
use prost::bytes::Bytes;
use tonic::{Code, Status, body::Body};

use super::{
    Answer, Delivery,
    call::{Call, Entry},
    frames::{self, Passed},
};

/// Hands each frame to the faults; the log's entry ends with the stream.
pub(super) fn open(call: Call, entry: Entry, answer: HttpResponse<Body>) -> HttpResponse<Body> {
    let (parts, body) = answer.into_parts();
    if let Some(status) = Status::from_header_map(&parts.headers) {
        let reply = call.after(Err(status.clone()), 0);
        let status = reply.outcome.err().unwrap_or(status);
        entry.end_with(&status);
        return frames::failed_answer(status);
    }
    let mut number = 0;
    let change = move |message: Bytes| {
        let frame = number;
        number += 1;
        pass(&call, message, frame)
    };
    let ended = move |trailers: &http::HeaderMap| match Status::from_header_map(trailers) {
        Some(status) if status.code() != Code::Ok => entry.end_with(&status),
        _ => entry.end("OK", ""),
    };
    frames::answer(frames::changed(body, change, ended))
}

fn pass(call: &Call, message: Bytes, number: u64) -> Passed {
    let Ok(answer) = Answer::decode(call.method, message.clone()) else {
        return Passed::Message(message.to_vec());
    };
    let reply = call.after(Ok(answer), number);
    match (reply.delivery, reply.outcome) {
        (Delivery::Drop, _) => Passed::Dropped,
        (Delivery::Send, Ok(answer)) => {
            let mut message = answer.encode();
            message.extend_from_slice(&reply.tail);
            Passed::Message(message)
        }
        _ => Passed::Reset,
    }
}
