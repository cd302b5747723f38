#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstddef>
#include <vector>

namespace rowlock::detail {

/// As readmit_member().
/// @param servers_differ false: members may share a server, as those of a test
void readmit(const std::vector<sql::connection_source>& members, std::size_t position,
             bool servers_differ);

}  // namespace rowlock::detail
