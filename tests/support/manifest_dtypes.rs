//! The library's names of the dtypes that corpus manifests name.

/// The library's name of a dtype. The manifests of numpy files have numpy's names, the others the library's.
pub fn library_name<'a>(format: &str, dtype: &'a str) -> &'a str {
    if !format.starts_with("np") {
        return dtype;
    }
    match dtype {
        "bool" => "BOOL",
        "int8" => "I8",
        "int16" => "I16",
        "int32" => "I32",
        "int64" => "I64",
        "uint8" => "U8",
        "uint16" => "U16",
        "uint32" => "U32",
        "uint64" => "U64",
        "float16" => "F16",
        "float32" => "F32",
        "float64" => "F64",
        "float128" => "F128",
        "complex64" => "C64",
        "complex128" => "C128",
        "float8_e5m2" => "F8_E5M2",
        "datetime64[D]" => "M8[D]",
        "timedelta64[s]" => "m8[s]",
        // numpy's names count bits, the library's count characters
        "str96" => "U3",
        "bytes16" => "S2",
        other => panic!("{other}: no dtype of numpy in this table"),
    }
}
