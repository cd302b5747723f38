#pragma once

#include "base/embedded.hpp"
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::schema {

/// One step of the schema: migrations/<dialect>/<NNNN>_<name>.up.sql and .down.sql.
struct migration {
    int version = 0;
    std::string_view name;
    std::string_view up;
    std::string_view down;

    /// Checksum of the .up.sql file, byte for byte: a released migration never changes, not even in
    /// a comment.
    [[nodiscard]] std::string checksum() const;
    /// "migration 1 (initial)"
    [[nodiscard]] std::string title() const;
    /// The latest migration that a library has to know to work on the tables that this one leaves,
    /// if the .up.sql file says so, in a line "-- oldest library: N". By default no earlier library
    /// than the one that brings it.
    [[nodiscard]] std::optional<int> oldest_library() const;
};

/// The migrations that a library knows for one dialect.
struct catalog {
    migration record;                 ///< 0000: the table that records the others
    std::vector<migration> numbered;  ///< from 1, without gaps

    [[nodiscard]] int latest() const noexcept { return static_cast<int>(numbered.size()); }
    /// @param version 1 to latest()
    [[nodiscard]] const migration& at(int version) const;
};

/// A row of the record table.
struct recorded_migration {
    std::int64_t version = 0;
    std::string checksum;
    std::optional<std::int64_t> oldest_library{};
};

/// The views point into `files`.
/// @throws error errc::database_error if a file is missing or a version is skipped
[[nodiscard]] catalog read_catalog(std::span<const embedded::file> files, sql::dialect which);

/// The catalog of this library.
[[nodiscard]] const catalog& library_catalog(sql::dialect which);

/// The version of a database with these rows, ordered by version. It may be later than the latest
/// of `known`, if those behind it say that a library like this one can work with them.
/// @throws error errc::schema_outdated if it is too new for `known`, or differs from it
[[nodiscard]] int verified_version(const std::vector<recorded_migration>& rows,
                                   const catalog& known);

/// 64-bit FNV-1a.
[[nodiscard]] std::uint64_t fingerprint(std::string_view text) noexcept;
[[nodiscard]] std::string hexadecimal(std::uint64_t number);

}  // namespace rowlock::schema
