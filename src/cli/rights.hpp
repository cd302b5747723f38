#pragma once

#include <rowlock/sql/connection.hpp>

#include <string_view>
#include <vector>

namespace rowlock::cli {

/// What a client, a reaper included, does with one of our tables.
struct table_rights {
    std::string_view table;
    std::string_view column;  ///< one of its columns
    std::vector<std::string_view> rights;
};

/// Of every table, for a role that neither migrates nor records a history.
[[nodiscard]] std::vector<table_rights> rights_of_a_client(sql::dialect speaks);

}  // namespace rowlock::cli
