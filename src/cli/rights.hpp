#pragma once

#include <rowlock/sql/connection.hpp>

#include <string_view>
#include <vector>

namespace rowlock::cli {

/// The rights that a client, a reaper included, needs on one of our tables.
struct table_rights {
    std::string_view table;
    std::string_view column;  ///< one of its columns
    std::vector<std::string_view> rights;
};

/// For every table, for a role that neither migrates nor records a history.
[[nodiscard]] std::vector<table_rights> rights_of_a_client(sql::dialect speaks);
/// The same for a role that shows locks and measures, and that cannot make a client believe in a
/// grant: it does not see the secrets of sessions (docs/adr/0032).
[[nodiscard]] std::vector<table_rights> rights_of_a_reader(sql::dialect speaks);

}  // namespace rowlock::cli
