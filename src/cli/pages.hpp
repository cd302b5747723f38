#pragma once

#include "cli/text.hpp"
#include <rowlock/client.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace rowlock::cli {

inline void complain_of_more(int limit) {
    complain(
        fmt::format("there are more than {}: use --limit, or --after with the last name", limit));
}

/// Up to `limit` rows that are `wanted`, behind the name `after`, of the pages that `read(page)`
/// returns; and whether there are more.
template <typename Read, typename Wanted>
auto read_pages(std::string after, int limit, Read read, Wanted wanted) {
    constexpr int page_size = 1000;
    page next{.after = std::move(after), .limit = page_size};
    decltype(read(next)) found;
    for (;;) {
        auto rows = read(next);
        const bool last = rows.size() < static_cast<std::size_t>(page_size);
        for (auto& row : rows) {
            next.after = row.name;
            if (!wanted(row)) continue;
            if (found.size() == static_cast<std::size_t>(limit)) {
                return std::pair{std::move(found), true};
            }
            found.push_back(std::move(row));
        }
        if (last) return std::pair{std::move(found), false};
    }
}

template <typename Read>
auto read_pages(std::string after, int limit, Read read) {
    return read_pages(std::move(after), limit, read, [](const auto&) { return true; });
}

}  // namespace rowlock::cli
