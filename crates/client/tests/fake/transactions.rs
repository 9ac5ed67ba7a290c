//! Transactions of the broker of a few lines.

use punctual_proto::v1;
use punctual_proto::v1::transaction_service_server::TransactionService;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::messages::Answers;
use super::{Broker, cut, refusal};

impl Broker {
    /// Decides, unless the answer is to be lost; what was decided otherwise before is refused.
    fn decide(&self, id: String, word: &'static str) -> Result<Response<v1::Transaction>, Status> {
        self.with(|state| {
            let earlier = state.decisions.iter().find(|(decided, _)| *decided == id);
            if earlier.is_some_and(|(_, other)| *other != word) {
                return Err(refusal("already_decided"));
            }
            state.decisions.push((id, word));
            if state.commits_lost > 0 {
                state.commits_lost -= 1;
                return Err(cut());
            }
            Ok(Response::new(v1::Transaction::default()))
        })
    }
}

#[tonic::async_trait]
impl TransactionService for Broker {
    type CheckStreamStream = Answers<v1::Check>;

    async fn prepare(
        &self,
        request: Request<v1::PrepareRequest>,
    ) -> Result<Response<v1::Transaction>, Status> {
        let request = request.into_inner();
        if request.producer_group == "forbidden" {
            return Err(refusal("forbidden"));
        }
        let id = request.producer_group.clone();
        self.with(|state| state.prepared.push(request));
        Ok(Response::new(v1::Transaction { id, ..v1::Transaction::default() }))
    }

    async fn commit(
        &self,
        request: Request<v1::DecideRequest>,
    ) -> Result<Response<v1::Transaction>, Status> {
        self.decide(request.into_inner().id, "commit")
    }

    async fn rollback(
        &self,
        request: Request<v1::DecideRequest>,
    ) -> Result<Response<v1::Transaction>, Status> {
        self.decide(request.into_inner().id, "rollback")
    }

    async fn check_stream(
        &self,
        request: Request<Streaming<v1::CheckStreamRequest>>,
    ) -> Result<Response<Self::CheckStreamStream>, Status> {
        // Kept, because its end would be the end of the stream.
        let (broker, requests) = (self.clone(), request.into_inner());
        let (tell, told) = mpsc::channel(16);
        tokio::spawn(async move {
            let _kept = requests;
            loop {
                let changed = broker.changed.notified();
                let check = broker.state.lock().unwrap().checks.pop_front();
                match check {
                    // A question about nothing stands for a stream that breaks.
                    Some(check) if check.transaction.is_empty() => {
                        drop(tell.send(Err(cut())).await);
                        return;
                    }
                    Some(check) => drop(tell.send(Ok(check)).await),
                    None => tokio::select! {
                        () = changed => {}
                        () = tell.closed() => return,
                    },
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }

    async fn resume(
        &self,
        _request: Request<v1::DecideRequest>,
    ) -> Result<Response<v1::Transaction>, Status> {
        Err(Status::unimplemented("resume"))
    }

    async fn get(
        &self,
        _request: Request<v1::GetTransactionRequest>,
    ) -> Result<Response<v1::Transaction>, Status> {
        Err(Status::unimplemented("get"))
    }

    async fn list(
        &self,
        _request: Request<v1::ListTransactionsRequest>,
    ) -> Result<Response<v1::ListTransactionsResponse>, Status> {
        Err(Status::unimplemented("list"))
    }

    async fn checks(
        &self,
        _request: Request<v1::ChecksRequest>,
    ) -> Result<Response<v1::ChecksResponse>, Status> {
        Err(Status::unimplemented("checks"))
    }
}
