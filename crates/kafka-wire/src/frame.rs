//! Frames: a header and a message, as they cross a connection.
//!
//! A frame is four bytes of size, then so many bytes. Whoever reads the connection checks the
//! size and takes it off; everything here that decodes starts after it, everything that encodes
//! writes it. The size of an answer counts its gaps.

use bytes::Bytes;

use crate::api::api;
use crate::codec::{LengthForm, Piece};
use crate::message::read_tags;
use crate::{Message, Reader, Request, WireError, Writer};

/// The key of ApiVersions, which is answered without a flexible header in every version, so that
/// a client reads the answer whatever the broker made of its version.
const API_VERSIONS: i16 = 18;

/// What stands before every request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API asked for.
    pub api_key: i16,
    /// The version of the request, which is that of the answer.
    pub api_version: i16,
    /// Repeated in the answer.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<String>,
}

impl RequestHeader {
    /// Reads the header in the form of the API and version it names. Of an API that is not known
    /// only what all forms have in common is read.
    pub fn decode(reader: &mut Reader) -> Result<Self, WireError> {
        let (api_key, api_version) = (reader.i16()?, reader.i16()?);
        let correlation_id = reader.i32()?;
        let client_id = match reader.length(LengthForm::Short)? {
            Some(length) => Some(reader.text(length)?),
            None => None,
        };
        if api(api_key).is_some_and(|api| api_version >= api.flexible) {
            read_tags(reader, |_tag, _reader| Ok(false))?;
        }
        Ok(Self { api_key, api_version, correlation_id, client_id })
    }

    fn encode(&self, writer: &mut Writer, flexible: bool) -> Result<(), WireError> {
        writer.bytes(&self.api_key.to_be_bytes());
        writer.bytes(&self.api_version.to_be_bytes());
        writer.bytes(&self.correlation_id.to_be_bytes());
        let client_id = self.client_id.as_deref();
        writer.length(client_id.map(str::len), LengthForm::Short)?;
        writer.bytes(client_id.unwrap_or_default().as_bytes());
        if flexible {
            writer.unsigned_varint(0);
        }
        Ok(())
    }
}

/// Reads the body of a request. Bytes behind it are left alone: there are clients that send some,
/// and brokers have always passed over them.
pub fn request<R: Request>(reader: &mut Reader, version: i16) -> Result<R, WireError> {
    check_version::<R>(version)?;
    R::decode(reader, version)
}

/// Writes the whole frame that answers a request.
pub fn response<R: Request>(
    correlation_id: i32,
    version: i16,
    response: &R::Response,
) -> Result<Answer, WireError> {
    check_version::<R>(version)?;
    let mut content = Writer::default();
    content.bytes(&correlation_id.to_be_bytes());
    if flexible_response_header::<R>(version) {
        content.unsigned_varint(0);
    }
    response.encode(&mut content, version)?;
    sized(content)
}

/// A frame ready to be sent.
#[derive(Debug)]
pub struct Answer {
    written: Writer,
}

impl Answer {
    /// Bytes on the connection, size and gaps included.
    pub fn total(&self) -> usize {
        self.written.total()
    }

    /// The frame, cut where bytes are sent from elsewhere.
    pub fn pieces(self) -> Vec<Piece> {
        self.written.pieces()
    }

    /// The frame in one piece, when nothing is sent from elsewhere.
    pub fn into_bytes(self) -> Result<Bytes, WireError> {
        self.written.into_bytes()
    }
}

/// Writes the whole frame of a request, as a client does.
pub fn call<R: Request>(
    correlation_id: i32,
    version: i16,
    client_id: Option<&str>,
    request: &R,
) -> Result<Bytes, WireError> {
    check_version::<R>(version)?;
    let header = RequestHeader {
        api_key: R::KEY,
        api_version: version,
        correlation_id,
        client_id: client_id.map(str::to_owned),
    };
    let mut content = Writer::default();
    header.encode(&mut content, version >= R::FLEXIBLE)?;
    request.encode(&mut content, version)?;
    sized(content)?.into_bytes()
}

/// Reads an answer without its size, as a client does: the correlation id and the message.
pub fn answer<R: Request>(frame: Bytes, version: i16) -> Result<(i32, R::Response), WireError> {
    check_version::<R>(version)?;
    let mut reader = Reader::new(frame);
    let correlation_id = reader.i32()?;
    if flexible_response_header::<R>(version) {
        read_tags(&mut reader, |_tag, _reader| Ok(false))?;
    }
    let response = R::Response::decode(&mut reader, version)?;
    reader.finish()?;
    Ok((correlation_id, response))
}

fn check_version<R: Request>(version: i16) -> Result<(), WireError> {
    if R::VERSIONS.contains(&version) {
        Ok(())
    } else {
        Err(WireError::Version { key: R::KEY, version })
    }
}

fn flexible_response_header<R: Request>(version: i16) -> bool {
    version >= R::FLEXIBLE && R::KEY != API_VERSIONS
}

/// Puts the size before the content.
fn sized(content: Writer) -> Result<Answer, WireError> {
    let total = content.total();
    let size = i32::try_from(total).map_err(|_range| WireError::Long(total))?;
    let mut written = Writer::default();
    written.bytes(&size.to_be_bytes());
    written.append(content);
    Ok(Answer { written })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
    use crate::messages::fetch::{
        FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData,
    };
    use crate::messages::metadata::MetadataRequest;
    use crate::{ErrorCode, Records};

    #[test]
    fn a_request_comes_back_with_its_header() {
        for version in [0, 8, 9, 13] {
            let sent = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
            let frame = call(7, version, Some("me"), &sent).unwrap();
            let size = i32::try_from(frame.len() - 4).unwrap();
            let mut reader = Reader::new(frame);
            assert_eq!(reader.i32(), Ok(size));
            let header = RequestHeader::decode(&mut reader).unwrap();
            let expected = RequestHeader {
                api_key: 3,
                api_version: version,
                correlation_id: 7,
                client_id: Some("me".to_owned()),
            };
            assert_eq!(header, expected);
            let received: MetadataRequest = request(&mut reader, version).unwrap();
            assert_eq!(received.topics, sent.topics);
        }
    }

    #[test]
    fn the_answer_to_api_versions_has_a_plain_header_in_every_version() {
        for version in 0..=4 {
            let sent = ApiVersionsResponse {
                error_code: ErrorCode::UNSUPPORTED_VERSION.code(),
                ..Default::default()
            };
            let frame = response::<ApiVersionsRequest>(9, version, &sent).unwrap();
            let frame = frame.into_bytes().unwrap();
            assert_eq!(frame.get(4..10), Some([0, 0, 0, 9, 0, 35].as_slice()));
        }
    }

    #[test]
    fn bytes_behind_a_request_are_passed_over_and_those_behind_an_answer_are_not() {
        let mut reader = Reader::new(Bytes::from_static(&[0, 0, 0, 0, 1]));
        let read = request::<MetadataRequest>(&mut reader, 0).unwrap();
        assert_eq!(read.topics, Some(Vec::new()));
        let sent = response::<ApiVersionsRequest>(9, 0, &ApiVersionsResponse::default()).unwrap();
        let mut frame = sent.into_bytes().unwrap().slice(4..).to_vec();
        frame.push(0);
        let refused = answer::<ApiVersionsRequest>(frame.into(), 0);
        assert_eq!(refused, Err(WireError::Trailing(1)));
    }

    #[test]
    fn a_version_outside_the_table_is_refused() {
        let mut reader = Reader::new(Bytes::new());
        let refused = request::<FetchRequest>(&mut reader, 3);
        assert_eq!(refused, Err(WireError::Version { key: 1, version: 3 }));
    }

    #[test]
    fn records_sent_from_elsewhere_leave_gaps_that_the_size_counts() {
        for version in 4..=17 {
            let partition = |length| PartitionData {
                records: Some(Records::Elsewhere(length)),
                ..Default::default()
            };
            let topic = FetchableTopicResponse {
                partitions: vec![partition(1000), partition(0), partition(20)],
                ..Default::default()
            };
            let sent = FetchResponse { responses: vec![topic], ..Default::default() };
            let frame = response::<FetchRequest>(1, version, &sent).unwrap();
            let total = frame.total();
            let mut whole = Vec::new();
            let mut gaps = Vec::new();
            for piece in frame.pieces() {
                match piece {
                    Piece::Bytes(bytes) => whole.extend_from_slice(&bytes),
                    Piece::Gap(length) => {
                        gaps.push(length);
                        whole.resize(whole.len() + length, b'r');
                    }
                }
            }
            assert_eq!(gaps, [1000, 20]);
            assert_eq!(whole.len(), total);
            let size = i32::try_from(total - 4).unwrap();
            assert_eq!(whole.get(..4), Some(size.to_be_bytes().as_slice()));
            let frame = Bytes::from(whole).slice(4..);
            let (correlation_id, received) = answer::<FetchRequest>(frame, version).unwrap();
            assert_eq!(correlation_id, 1);
            let records: Vec<_> = received.responses[0]
                .partitions
                .iter()
                .map(|partition| partition.records.clone())
                .collect();
            let here = |length: usize| Some(Records::Here(Bytes::from(vec![b'r'; length])));
            assert_eq!(records, [here(1000), here(0), here(20)]);
        }
    }
}
