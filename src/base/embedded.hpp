#pragma once

#include <span>
#include <string_view>

/// The .sql files, compiled in by cmake/EmbedText.cmake.
namespace rowlock::embedded {

struct file {
    std::string_view path;  ///< "lock/protocol/lease/sql/postgresql.sql"
    std::string_view text;
};

std::span<const file> statement_files() noexcept;  ///< src/<feature>/sql and src/sql/fragments
std::span<const file> migration_files() noexcept;  ///< migrations
std::span<const file> history_files() noexcept;    ///< migrations/<dialect>/history
std::span<const file> template_files() noexcept;   ///< migrations, for the users' own tables

}  // namespace rowlock::embedded
