#pragma once

#include <rowlock/client.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace rowlock::cli {

/// Up to `limit` rows behind the name `after`, in the pages that `read(page)` returns, and whether
/// there are more.
template <typename Read>
auto read_pages(std::string after, int limit, Read read) {
    constexpr int page_size = 1000;
    page next{.after = std::move(after), .limit = page_size};
    decltype(read(next)) found;
    for (;;) {
        auto rows = read(next);
        const bool last = rows.size() < static_cast<std::size_t>(page_size);
        for (auto& row : rows) {
            if (found.size() == static_cast<std::size_t>(limit)) {
                return std::pair{std::move(found), true};
            }
            next.after = row.name;
            found.push_back(std::move(row));
        }
        if (last) return std::pair{std::move(found), false};
    }
}

}  // namespace rowlock::cli
