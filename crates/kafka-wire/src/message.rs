//! What every message is: fields in the forms of a version, described once per field.
//!
//! The macro `wire!` turns one description (name, type, versions, versions with null, tag,
//! default) into the struct, its default, its decoder and its encoder. What must hold: what is
//! decoded in a version is encoded to the same bytes in that version, but for tagged fields
//! unknown here, which are skipped. There is no recursion in any description, so nesting is
//! bounded by the types themselves.

use std::fmt::Debug;
use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::codec::LengthForm;
use crate::{Reader, WireError, Writer};

/// A value that is read and written in the form of a version.
pub trait Message: Sized + Default + Clone + Debug + PartialEq {
    /// Reads the fields that the version has; the others keep their defaults.
    fn decode(reader: &mut Reader, version: i16) -> Result<Self, WireError>;

    /// Writes the fields that the version has; the others are left out, and null where the
    /// version knows none is written as empty.
    fn encode(&self, writer: &mut Writer, version: i16) -> Result<(), WireError>;
}

/// A message that starts an exchange.
pub trait Request: Message {
    /// The number of the API.
    const KEY: i16;
    /// The API's name, without "Request".
    const NAME: &'static str;
    /// The versions that can be read and written.
    const VERSIONS: RangeInclusive<i16>;
    /// The first version with compact lengths and tagged fields.
    const FLEXIBLE: i16;
    /// What is answered.
    type Response: Message;
}

/// The [`Request::FLEXIBLE`] of an API that has no flexible version.
pub const NEVER_FLEXIBLE: i16 = i16::MAX;

/// Record batches in a response: the bytes, or only how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Records {
    /// The bytes themselves. What is decoded is always this.
    Here(Bytes),
    /// So many bytes, which are sent from elsewhere: a gap in what is written.
    Elsewhere(usize),
}

/// The circumstances in which a field is read or written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) version: i16,
    pub(crate) flexible: bool,
    pub(crate) nullable: bool,
}

impl Form {
    fn length(self, plain: LengthForm) -> LengthForm {
        if self.flexible { LengthForm::Compact } else { plain }
    }

    /// The form of an array's elements, which are never null.
    fn element(self) -> Self {
        Self { nullable: false, ..self }
    }
}

/// A type that a field of a message can have.
pub(crate) trait Field: Sized {
    /// Reads a value, or `None` for null.
    fn read_nullable(reader: &mut Reader, form: Form) -> Result<Option<Self>, WireError>;

    /// Writes a value.
    fn write(&self, writer: &mut Writer, form: Form) -> Result<(), WireError>;

    /// Writes null.
    fn write_null(writer: &mut Writer, form: Form) -> Result<(), WireError>;

    /// Writes what stands for nothing where null is not allowed.
    fn write_empty(writer: &mut Writer, form: Form) -> Result<(), WireError>;

    /// Reads a value; null is refused.
    fn read(reader: &mut Reader, form: Form) -> Result<Self, WireError> {
        Self::read_nullable(reader, form)?.ok_or(WireError::Null)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field for $number {
            fn read_nullable(reader: &mut Reader, _form: Form) -> Result<Option<Self>, WireError> {
                Ok(Some(Self::from_be_bytes(reader.array()?)))
            }

            fn write(&self, writer: &mut Writer, _form: Form) -> Result<(), WireError> {
                writer.bytes(&self.to_be_bytes());
                Ok(())
            }

            fn write_null(writer: &mut Writer, form: Form) -> Result<(), WireError> {
                Self::write_empty(writer, form)
            }

            fn write_empty(writer: &mut Writer, form: Form) -> Result<(), WireError> {
                Self::default().write(writer, form)
            }
        }
    )*};
}

numbers!(i8, i16, i32, i64, u16);

impl Field for bool {
    fn read_nullable(reader: &mut Reader, _form: Form) -> Result<Option<Self>, WireError> {
        Ok(Some(reader.u8()? != 0))
    }

    fn write(&self, writer: &mut Writer, _form: Form) -> Result<(), WireError> {
        writer.u8(u8::from(*self));
        Ok(())
    }

    fn write_null(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        Self::write_empty(writer, form)
    }

    fn write_empty(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        false.write(writer, form)
    }
}

impl Field for [u8; 16] {
    fn read_nullable(reader: &mut Reader, _form: Form) -> Result<Option<Self>, WireError> {
        reader.array().map(Some)
    }

    fn write(&self, writer: &mut Writer, _form: Form) -> Result<(), WireError> {
        writer.bytes(self);
        Ok(())
    }

    fn write_null(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        Self::write_empty(writer, form)
    }

    fn write_empty(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        [0; 16].write(writer, form)
    }
}

impl Field for String {
    fn read_nullable(reader: &mut Reader, form: Form) -> Result<Option<Self>, WireError> {
        match reader.length(form.length(LengthForm::Short))? {
            Some(length) => reader.text(length).map(Some),
            None => Ok(None),
        }
    }

    fn write(&self, writer: &mut Writer, form: Form) -> Result<(), WireError> {
        writer.length(Some(self.len()), form.length(LengthForm::Short))?;
        writer.bytes(self.as_bytes());
        Ok(())
    }

    fn write_null(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        writer.length(None, form.length(LengthForm::Short))
    }

    fn write_empty(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        writer.length(Some(0), form.length(LengthForm::Short))
    }
}

impl Field for Bytes {
    fn read_nullable(reader: &mut Reader, form: Form) -> Result<Option<Self>, WireError> {
        match reader.length(form.length(LengthForm::Long))? {
            Some(length) => reader.bytes(length).map(Some),
            None => Ok(None),
        }
    }

    fn write(&self, writer: &mut Writer, form: Form) -> Result<(), WireError> {
        writer.length(Some(self.len()), form.length(LengthForm::Long))?;
        writer.bytes(self);
        Ok(())
    }

    fn write_null(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        writer.length(None, form.length(LengthForm::Long))
    }

    fn write_empty(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        writer.length(Some(0), form.length(LengthForm::Long))
    }
}

impl Field for Records {
    fn read_nullable(reader: &mut Reader, form: Form) -> Result<Option<Self>, WireError> {
        Ok(Bytes::read_nullable(reader, form)?.map(Self::Here))
    }

    fn write(&self, writer: &mut Writer, form: Form) -> Result<(), WireError> {
        match self {
            Self::Here(bytes) => bytes.write(writer, form),
            Self::Elsewhere(length) => {
                writer.length(Some(*length), form.length(LengthForm::Long))?;
                writer.gap(*length);
                Ok(())
            }
        }
    }

    fn write_null(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        Bytes::write_null(writer, form)
    }

    fn write_empty(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        Bytes::write_empty(writer, form)
    }
}

impl<T: Field> Field for Vec<T> {
    fn read_nullable(reader: &mut Reader, form: Form) -> Result<Option<Self>, WireError> {
        let Some(count) = reader.length(form.length(LengthForm::Long))? else {
            return Ok(None);
        };
        let count = reader.count(count, size_of::<T>())?;
        let mut elements = Self::with_capacity(count);
        for _element in 0..count {
            elements.push(T::read(reader, form.element())?);
        }
        Ok(Some(elements))
    }

    fn write(&self, writer: &mut Writer, form: Form) -> Result<(), WireError> {
        writer.length(Some(self.len()), form.length(LengthForm::Long))?;
        self.iter().try_for_each(|element| element.write(writer, form.element()))
    }

    fn write_null(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        writer.length(None, form.length(LengthForm::Long))
    }

    fn write_empty(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        writer.length(Some(0), form.length(LengthForm::Long))
    }
}

impl<T: Field> Field for Option<T> {
    fn read_nullable(reader: &mut Reader, form: Form) -> Result<Option<Self>, WireError> {
        if form.nullable {
            T::read_nullable(reader, form).map(Some)
        } else {
            T::read(reader, form).map(|value| Some(Some(value)))
        }
    }

    fn write(&self, writer: &mut Writer, form: Form) -> Result<(), WireError> {
        match self {
            Some(value) => value.write(writer, form),
            None if form.nullable => T::write_null(writer, form),
            None => T::write_empty(writer, form),
        }
    }

    fn write_null(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        T::write_null(writer, form)
    }

    fn write_empty(writer: &mut Writer, form: Form) -> Result<(), WireError> {
        T::write_empty(writer, form)
    }
}

/// Reads the tagged fields at the end of a flexible struct. `known` reads the value of a tag it
/// knows, all of it, and says false to one it does not, which is then passed over.
pub(crate) fn read_tags(
    reader: &mut Reader,
    mut known: impl FnMut(u32, &mut Reader) -> Result<bool, WireError>,
) -> Result<(), WireError> {
    let count = reader.unsigned_varint()?;
    for _tag in 0..count {
        let tag = reader.unsigned_varint()?;
        let length = usize::try_from(reader.unsigned_varint()?).unwrap_or(usize::MAX);
        reader.within(length, |reader| {
            if known(tag, reader)? {
                return Ok(());
            }
            reader.skip(reader.remaining())
        })?;
    }
    Ok(())
}

/// The tagged fields of a struct being written, which are counted before they are sent.
#[derive(Default)]
pub(crate) struct Tags {
    count: u32,
    written: Writer,
}

impl Tags {
    /// Adds a field. Descriptions name their tags in ascending order, as the protocol wants them.
    pub(crate) fn add<T: Field>(
        &mut self,
        tag: u32,
        value: &T,
        form: Form,
    ) -> Result<(), WireError> {
        let mut content = Writer::default();
        value.write(&mut content, form)?;
        let length = content.total();
        let length = u32::try_from(length).map_err(|_range| WireError::Long(length))?;
        self.count += 1;
        self.written.unsigned_varint(tag);
        self.written.unsigned_varint(length);
        self.written.append(content);
        Ok(())
    }
}

/// Writes the tagged fields at the end of a flexible struct, those that `fields` adds.
pub(crate) fn write_tags(
    writer: &mut Writer,
    fields: impl FnOnce(&mut Tags) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut tags = Tags::default();
    fields(&mut tags)?;
    writer.unsigned_varint(tags.count);
    writer.append(tags.written);
    Ok(())
}

/// Describes structs of the protocol, one line per field:
/// `name: Type => versions, null versions, tag number, or default;`
/// (all but the versions may be left out; a tag stands in all versions of its field).
macro_rules! wire {
    (
        flexible $flexible:expr;
        $(
            $(#[$doc:meta])*
            struct $name:ident {
                $(
                    $field:ident: $type:ty => $versions:expr
                        $(, null $null:expr)? $(, tag $tag:literal)? $(, or $default:expr)?;
                )*
            }
        )*
    ) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $(
                #[doc = concat!("In versions `", stringify!($versions), "`.")]
                pub $field: $type,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::message::default_value!($($default)?),)* }
            }
        }

        impl $crate::Message for $name {
            fn decode(
                reader: &mut $crate::Reader,
                version: i16,
            ) -> Result<Self, $crate::WireError> {
                let flexible = version >= $flexible;
                let mut message = Self::default();
                $(
                    $crate::message::unless_tagged!(($($tag)?) {
                        if ($versions).contains(&version) {
                            let nullable = $crate::message::null_in!(version $(, $null)?);
                            let form = $crate::message::Form { version, flexible, nullable };
                            message.$field = $crate::message::Field::read(reader, form)?;
                        }
                    });
                )*
                if flexible {
                    $crate::message::read_tags(reader, |_tag, _reader| {
                        $(
                            $crate::message::if_tagged!(($($tag)?) number {
                                if _tag == number && ($versions).contains(&version) {
                                    let nullable = $crate::message::null_in!(version $(, $null)?);
                                    let form =
                                        $crate::message::Form { version, flexible, nullable };
                                    message.$field = $crate::message::Field::read(_reader, form)?;
                                    return Ok(true);
                                }
                            });
                        )*
                        Ok(false)
                    })?;
                }
                Ok(message)
            }

            fn encode(
                &self,
                writer: &mut $crate::Writer,
                version: i16,
            ) -> Result<(), $crate::WireError> {
                let flexible = version >= $flexible;
                $(
                    $crate::message::unless_tagged!(($($tag)?) {
                        if ($versions).contains(&version) {
                            let nullable = $crate::message::null_in!(version $(, $null)?);
                            let form = $crate::message::Form { version, flexible, nullable };
                            $crate::message::Field::write(&self.$field, writer, form)?;
                        }
                    });
                )*
                if flexible {
                    $crate::message::write_tags(writer, |_tags| {
                        $(
                            $crate::message::if_tagged!(($($tag)?) number {
                                let default: $type = $crate::message::default_value!($($default)?);
                                if ($versions).contains(&version) && self.$field != default {
                                    let nullable = $crate::message::null_in!(version $(, $null)?);
                                    let form =
                                        $crate::message::Form { version, flexible, nullable };
                                    _tags.add(number, &self.$field, form)?;
                                }
                            });
                        )*
                        Ok(())
                    })?;
                }
                Ok(())
            }
        }

        $crate::message::struct_field!($name);

        #[cfg(test)]
        impl $crate::messages::sample::Sample for $name {
            fn sample(
                _random: &mut $crate::messages::sample::Random,
                form: $crate::message::Form,
            ) -> Self {
                let version = form.version;
                let mut message = Self::default();
                $(
                    if ($versions).contains(&version) {
                        let nullable = $crate::message::null_in!(version $(, $null)?);
                        let form = $crate::message::Form { nullable, ..form };
                        message.$field = $crate::messages::sample::Sample::sample(_random, form);
                    }
                )*
                message
            }
        }
    )*};
}

/// The default of a field: the one described, or that of its type.
macro_rules! default_value {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}

/// Whether null is allowed in a version: in none, when nothing is described.
macro_rules! null_in {
    ($version:ident) => {
        false
    };
    ($version:ident, $versions:expr) => {
        ($versions).contains(&$version)
    };
}

/// The code for a field that stands in its place, and nothing for one that is tagged.
macro_rules! unless_tagged {
    (() $code:block) => {
        $code
    };
    (($tag:literal) $code:block) => {};
}

/// The code for a field that is tagged, with its number, and nothing for one that is not.
macro_rules! if_tagged {
    (() $number:ident $code:block) => {};
    (($tag:literal) $number:ident $code:block) => {{
        let $number: u32 = $tag;
        $code
    }};
}

/// Makes a struct a field of another one. Where it can be null, a byte before it says so.
macro_rules! struct_field {
    ($name:ident) => {
        impl $crate::message::Field for $name {
            fn read(
                reader: &mut $crate::Reader,
                form: $crate::message::Form,
            ) -> Result<Self, $crate::WireError> {
                $crate::Message::decode(reader, form.version)
            }

            fn read_nullable(
                reader: &mut $crate::Reader,
                form: $crate::message::Form,
            ) -> Result<Option<Self>, $crate::WireError> {
                if reader.i8()? < 0 {
                    return Ok(None);
                }
                $crate::Message::decode(reader, form.version).map(Some)
            }

            fn write(
                &self,
                writer: &mut $crate::Writer,
                form: $crate::message::Form,
            ) -> Result<(), $crate::WireError> {
                if form.nullable {
                    writer.u8(1);
                }
                $crate::Message::encode(self, writer, form.version)
            }

            fn write_null(
                writer: &mut $crate::Writer,
                _form: $crate::message::Form,
            ) -> Result<(), $crate::WireError> {
                writer.u8(0xff);
                Ok(())
            }

            fn write_empty(
                writer: &mut $crate::Writer,
                form: $crate::message::Form,
            ) -> Result<(), $crate::WireError> {
                $crate::Message::encode(&Self::default(), writer, form.version)
            }
        }
    };
}

/// Makes a struct the request of an API.
macro_rules! request {
    ($request:ident => $response:ident, $name:literal, $key:literal, $versions:expr, $flexible:expr) => {
        impl $crate::Request for $request {
            const KEY: i16 = $key;
            const NAME: &'static str = $name;
            const VERSIONS: std::ops::RangeInclusive<i16> = $versions;
            const FLEXIBLE: i16 = $flexible;
            type Response = $response;
        }
    };
}

pub(crate) use {default_value, if_tagged, null_in, request, struct_field, unless_tagged, wire};
