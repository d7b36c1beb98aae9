//! The provider's process: the mock, served over streams, killed and restarted.

use std::{io, sync::Arc};

use cloudprovider_sdk::{Endpoint, ServeOptions};
use parking_lot::Mutex;
use provider_mock::serve::Mock;
use tokio::{io::DuplexStream, sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::{
    doubling::Doubling,
    ear::Ear,
    kubelets,
    line::{Line, stream},
    record::Record,
};

/// The provider, through all its lives.
#[derive(Debug, Clone)]
pub struct Provider(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mock: Mock,
    doubling: Doubling,
    record: Record,
    /// What it advertises.
    advertise: String,
    /// Whether it asks for a node label, another one in each life.
    reads_labels: bool,
    life: Mutex<Option<Life>>,
    lives: Mutex<u64>,
}

#[derive(Debug)]
struct Life {
    streams: mpsc::UnboundedSender<DuplexStream>,
    /// Every connection of this life.
    line: Line,
    running: JoinHandle<()>,
}

impl Provider {
    /// The provider over this mock, not started yet.
    pub fn new(mock: Mock, doubling: Doubling, record: Record, advertise: &str, reads_labels: bool) -> Self {
        Self(Arc::new(Inner {
            mock,
            doubling,
            record,
            advertise: advertise.to_owned(),
            reads_labels,
            life: Mutex::default(),
            lives: Mutex::default(),
        }))
    }

    /// Starts it, if it is not running.
    pub fn start(&self) {
        let mut life = self.0.life.lock();
        if life.is_some() {
            return;
        }
        let number = {
            let mut lives = self.0.lives.lock();
            *lives += 1;
            *lives
        };
        let epoch = format!("life-{number}");
        let (streams, incoming) = mpsc::unbounded_channel();
        let (mut mock, doubling) = (self.0.mock.clone(), self.0.doubling.clone());
        let label = self.0.reads_labels.then(|| kubelets::label(number));
        if let Some(label) = &label
            && let Ok(advertised) = format!("{},node-label={label}", self.0.advertise).parse()
        {
            mock.advertised = advertised;
        }
        let ear = Ear::new(self.0.record.clone(), label);
        let running = tokio::spawn(async move {
            let options = ServeOptions::new(Endpoint::Unix("/simulated".into()));
            let Ok((server, handle)) = mock.server(&epoch, options) else { return };
            tokio::select! {
                _ended = server.layer(doubling.layer()).layer(ear.layer()).run_over(UnboundedReceiverStream::new(incoming)) => {}
                never = mock.live(handle) => match never {},
            }
        });
        *life = Some(Life { streams, line: Line::default(), running });
    }

    /// Kills it.
    pub fn kill(&self) {
        if let Some(life) = self.0.life.lock().take() {
            life.line.close();
            life.running.abort();
        }
    }

    /// A new connection from a host, over its line.
    ///
    /// # Errors
    /// Nobody listens, or the line is closed.
    pub fn dial(&self, from: &Line) -> io::Result<DuplexStream> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let life = self.0.life.lock();
        let life = life.as_ref().ok_or_else(refused)?;
        let near = from.connect().map_err(|_| refused())?;
        let far = life.line.connect().map_err(|_| refused())?;
        let (host, provider) = stream(&near, &far);
        life.streams.send(provider).map_err(|_| refused())?;
        Ok(host)
    }
}
