//! Breaches by the frames of a watch.

use cloudprovider_sdk::proto::watch_instances_response::Frame;

use super::{Breach, late};
use crate::wire::{Answer, Delivery, Method, Reply, Request, Shot};

const WATCH: &[Method] = &[Method::WatchInstances];

pub(super) const BREACHES: &[Breach] = &[
    late("watch-started", "the first frame is not `started`", WATCH, started),
    late("watch-bookmark", "no bookmark ever comes", WATCH, bookmark),
];

fn frame(reply: &Reply) -> Option<&Frame> {
    match &reply.outcome {
        Ok(Answer::WatchInstances(answer)) => answer.frame.as_ref(),
        _ => None,
    }
}

fn started(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    if matches!(frame(reply), Some(Frame::Started(_))) {
        reply.delivery = Delivery::Drop;
    }
}

fn bookmark(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    if matches!(frame(reply), Some(Frame::Bookmark(_))) {
        reply.delivery = Delivery::Drop;
    }
}
