//! The models as a Parquet file, with the feature `parquet`.

use std::io::Read;
use std::path::Path;

use anamnesis_os::files::open_regular;

use super::RowWriter;
use crate::exit::RunError;
use crate::failure::Failure;
use crate::written_file::WrittenFile;

/// The bytes with which each Parquet file begins.
const MAGIC: &[u8; 4] = b"PAR1";

/// Whether a file is a Parquet file, which `--overwrite` may replace beside models.
pub(super) fn is_list(path: &Path) -> bool {
    let mut first = [0; MAGIC.len()];
    let read = open_regular(path).and_then(|(mut file, _)| file.read_exact(&mut first));
    read.is_ok() && first == *MAGIC
}

/// The writer of a file.
///
/// # Errors
///
/// This program was built without the feature.
pub(super) fn writer<'p>(file: WrittenFile<'p>) -> Result<Box<dyn RowWriter + 'p>, RunError> {
    #[cfg(feature = "parquet")]
    {
        Ok(Box::new(written::ParquetRows::new(file)?))
    }
    #[cfg(not(feature = "parquet"))]
    {
        let failure = Failure::new(
            "unsupported",
            "this program was built without Parquet",
            "build it with the feature `parquet`, or use --csv or --json",
        );
        Err(failure.of_arguments().in_file(file.path()).into())
    }
}

#[cfg(feature = "parquet")]
mod written {
    use std::sync::Arc;

    use anamnesis::ModelEntry;
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::errors::{ParquetError, Result};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::output::Stdout;

    /// Models of a row group: their values are in memory until it is written.
    const GROUP: usize = 16_384;

    /// The columns, in the order of the fields of a line of `--json`.
    const SCHEMA: &str = "message models {
        required binary path (STRING); optional binary format (STRING); optional binary architecture (STRING);
        optional int64 parameters (INTEGER(64, false)); optional binary dtype (STRING);
        optional binary quantisation (STRING); optional int64 nbytes (INTEGER(64, false));
        optional int64 context (INTEGER(64, false)); optional int64 files (INTEGER(64, false));
        optional binary error (STRING); optional binary note (STRING);
    }";

    /// The values of a column in a row group; `None` for null.
    enum ColumnValues {
        Texts(Vec<Option<ByteArray>>),
        Numbers(Vec<Option<i64>>),
    }

    /// A file that is written when it is whole.
    pub(in super::super) struct ParquetRows<'p> {
        file: WrittenFile<'p>,
        writer: Option<SerializedFileWriter<Vec<u8>>>,
        columns: Vec<ColumnValues>,
        rows: usize,
    }

    impl<'p> ParquetRows<'p> {
        pub(in super::super) fn new(file: WrittenFile<'p>) -> Result<Self, RunError> {
            let open = || {
                let schema = Arc::new(parse_message_type(SCHEMA)?);
                let properties = Arc::new(WriterProperties::builder().build());
                SerializedFileWriter::new(Vec::new(), schema, properties)
            };
            Ok(Self {
                writer: Some(open().map_err(|e| failure(&e, &file))?),
                file,
                columns: columns(),
                rows: 0,
            })
        }

        fn write_group(&mut self) -> Result<()> {
            let columns = std::mem::replace(&mut self.columns, columns());
            self.rows = 0;
            let writer = self.writer.as_mut().expect("it is taken at the end");
            let mut group = writer.next_row_group()?;
            // the first column is the only one that is never null
            for (number, column) in columns.into_iter().enumerate() {
                write_column(&mut group, column, number > 0)?;
            }
            group.close()?;
            Ok(())
        }
    }

    fn columns() -> Vec<ColumnValues> {
        let text = || ColumnValues::Texts(Vec::new());
        let number = || ColumnValues::Numbers(Vec::new());
        vec![
            text(),
            text(),
            text(),
            number(),
            text(),
            text(),
            number(),
            number(),
            number(),
            text(),
            text(),
        ]
    }

    fn write_column(
        group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
        values: ColumnValues,
        is_optional: bool,
    ) -> Result<()> {
        let Some(mut column) = group.next_column()? else {
            return Err(ParquetError::General("a column is missing".into()));
        };
        let levels = |present: &[bool]| -> Option<Vec<i16>> {
            is_optional.then(|| present.iter().map(|&is| i16::from(is)).collect())
        };
        match values {
            ColumnValues::Texts(values) => {
                let present: Vec<bool> = values.iter().map(Option::is_some).collect();
                let values: Vec<ByteArray> = values.into_iter().flatten().collect();
                let column = column.typed::<ByteArrayType>();
                column.write_batch(&values, levels(&present).as_deref(), None)?;
            }
            ColumnValues::Numbers(values) => {
                let present: Vec<bool> = values.iter().map(Option::is_some).collect();
                let values: Vec<i64> = values.into_iter().flatten().collect();
                let column = column.typed::<Int64Type>();
                column.write_batch(&values, levels(&present).as_deref(), None)?;
            }
        }
        column.close()
    }

    fn failure(error: &ParquetError, file: &WrittenFile<'_>) -> Failure {
        let message = format!("the list cannot be written: {error}");
        Failure::new("io", message, "use --csv or --json").in_file(file.path())
    }

    impl RowWriter for ParquetRows<'_> {
        fn add(&mut self, model: &ModelEntry, _: &mut Stdout) -> Result<(), RunError> {
            let mut texts = [
                Some(model.path_text()),
                model.format.map(str::to_owned),
                model.architecture.clone(),
                model.dtype.clone(),
                model.quantisation.clone(),
                model.error_text(),
                model.note.clone(),
            ]
            .into_iter();
            let mut numbers =
                [model.parameters, model.nbytes, model.context, model.files].into_iter();
            for column in &mut self.columns {
                match column {
                    ColumnValues::Texts(values) => {
                        let text = texts.next().expect("a text for each such column");
                        values.push(text.map(|text| ByteArray::from(text.into_bytes())));
                    }
                    ColumnValues::Numbers(values) => {
                        let number = numbers.next().expect("a number for each such column");
                        // the column's type is one without a sign, of the same bits
                        values.push(number.map(u64::cast_signed));
                    }
                }
            }
            self.rows += 1;
            if self.rows == GROUP {
                self.write_group().map_err(|e| failure(&e, &self.file))?;
            }
            Ok(())
        }

        fn finish(&mut self, _: &mut Stdout) -> Result<(), RunError> {
            if self.rows > 0 {
                self.write_group().map_err(|e| failure(&e, &self.file))?;
            }
            let writer = self.writer.take().expect("finished once");
            let bytes = writer.into_inner().map_err(|e| failure(&e, &self.file))?;
            Ok(self.file.write(&bytes)?)
        }
    }
}
