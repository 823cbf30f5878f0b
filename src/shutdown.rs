//! Stopping: SIGTERM and SIGINT ask for a drain; whatever waits on a [`Stop`] wakes up at once.

use tokio::sync::watch;

/// A stop that was asked for, or will be.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

/// The side that asks.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// A pair of both.
pub fn channel() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    /// Asks everybody to stop.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// Waits until a stop is asked for; for ever if the asking side is gone.
    pub async fn asked(&mut self) {
        if self.0.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Asks for a stop on the first SIGTERM or SIGINT. Must run inside a runtime.
pub fn on_signals(stopper: Stopper) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: the input is closed and what has been read is drained");
        stopper.stop();
    });
    Ok(())
}
