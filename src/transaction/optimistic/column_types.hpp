#pragma once

#include "transaction/optimistic/version_sql.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock::optimistic {

/// The catalog's description of a table's columns.
class column_types {
public:
    /// One round trip. @throws error errc::schema_outdated if the table is missing
    static column_types of(sql::connection& db, std::string_view table, sql::deadline until);

    /// Returns null if there is no column of that name. Letters beyond ASCII must be written as
    /// in the catalog.
    [[nodiscard]] const column_type* find(std::string_view column) const noexcept;
    /// @throws error errc::schema_outdated if there is no column of that name
    [[nodiscard]] const column_type& at(std::string_view column) const;

private:
    sql::dialect speaks_{};
    std::vector<std::pair<std::string, column_type>> columns_;
};

/// @throws error errc::unsupported if two updates of such a column could yield equal versions
void require_version_type(sql::dialect speaks, const column_type& type, bool is_time);
/// @throws error errc::unsupported if the column cannot store a deletion time
void require_deleted_type(const column_type& type);

}  // namespace rowlock::optimistic
