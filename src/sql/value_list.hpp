#pragma once

#include <rowlock/sql/connection.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

/// For statements whose lists have a fixed length, on databases without arrays: a longer list is
/// sent in parts, a shorter one repeats its first value.
namespace rowlock::sql {

/// How many values such a list has.
inline constexpr std::size_t list_size = 16;

/// Writes `value_of(item)` of each item to the list that begins at parameter `at`.
template <typename Item, typename ValueOf>
void put_list(std::span<sql::value> parameters, std::size_t at, std::span<const Item> items,
              ValueOf value_of, std::size_t size = list_size) {
    for (std::size_t i = 0; i < size; ++i) {
        parameters[at + i] = sql::value{value_of(items[i < items.size() ? i : 0])};
    }
}

/// Calls `use(part, index of its first)` for each part of `items` that fits into a list.
template <typename Item, typename Use>
void for_each_part(std::span<Item> items, Use use, std::size_t size = list_size) {
    for (std::size_t from = 0; from < items.size(); from += size) {
        use(items.subspan(from, std::min(size, items.size() - from)), from);
    }
}

/// Runs `what` for each part of `items`, with `first` before them, and calls `use(its result)`.
template <std::size_t Count, typename Item, typename Use>
void for_each_list(sql::connection& db, const sql::statement& what,
                   const std::array<sql::value, Count>& first, std::span<const Item> items,
                   sql::deadline until, Use use) {
    for_each_part(items, [&](std::span<const Item> part, std::size_t) {
        std::array<sql::value, Count + list_size> parameters{};
        std::ranges::copy(first, parameters.begin());
        put_list(std::span<sql::value>{parameters}, Count, part,
                 [](const Item& each) -> const Item& { return each; });
        use(db.execute(what, parameters, until));
    });
}

}  // namespace rowlock::sql
