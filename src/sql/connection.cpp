#include "sql/connection_memory.hpp"
#include "sql/source_shared.hpp"
#include "sql/table_names.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <charconv>
#include <ostream>
#include <utility>

namespace rowlock::sql {

std::string_view to_string(dialect which) noexcept {
    switch (which) {
        case dialect::postgresql:
            return "postgresql";
        case dialect::mysql:
            return "mysql";
        case dialect::sqlite:
            return "sqlite";
    }
    return "unknown";
}

std::ostream& operator<<(std::ostream& out, dialect which) {
    return out << to_string(which);
}

statement::statement(std::string text) : text_{std::move(text)} {
    static std::atomic<std::uint64_t> last_id{0};
    id_ = ++last_id;
}

const result::cell& result::at(std::size_t row, std::size_t column) const {
    if (row >= rows() || column >= columns_) {
        throw error{errc::database_error, "a result was read outside its rows and columns"};
    }
    return cells_[row * columns_ + column];
}

bool result::is_null(std::size_t row, std::size_t column) const {
    return at(row, column).length == null_cell;
}

std::string_view result::text(std::size_t row, std::size_t column) const {
    const cell& found = at(row, column);
    if (found.length == null_cell) return {};
    return std::string_view{buffer_}.substr(found.offset, found.length);
}

std::optional<std::int64_t> result::maybe_integer(std::size_t row, std::size_t column) const {
    if (is_null(row, column)) return std::nullopt;
    const std::string_view digits = text(row, column);
    std::int64_t number = 0;
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (failure != std::errc{} || end != digits.data() + digits.size()) {
        throw error{errc::database_error, "the database answered text where a number was expected"};
    }
    return number;
}

std::int64_t result::integer(std::size_t row, std::size_t column) const {
    if (const auto number = maybe_integer(row, column)) return *number;
    throw error{errc::database_error, "the database answered NULL where a number was expected"};
}

void result::append_text(std::string_view text) {
    cells_.push_back({buffer_.size(), text.size()});
    buffer_.append(text);
}

void result::append_integer(std::int64_t number) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    append_text({digits, static_cast<std::size_t>(end - digits)});
}

connection::~connection() = default;

std::optional<bool> connection::transact(std::span<const step> /*steps*/,
                                         std::string_view /*afterwards*/, deadline /*until*/) {
    return std::nullopt;
}

// NOLINTBEGIN(performance-unnecessary-value-param): those that post keep it.
bool connection::post(const statement& /*what*/, std::span<const value> /*parameters*/,
                      deadline /*until*/, posted_answer /*on_answer*/) {
    return false;
}
// NOLINTEND(performance-unnecessary-value-param)

void connection::share_memory_of(connection& other) {
    static_cast<void>(memory_of(other));
    memory_ = other.memory_;
}

connection_memory& memory_of(connection& db) {
    if (!db.memory_) db.memory_ = std::make_shared<connection_memory>();
    return *db.memory_;
}

connection_source::connection_source(dialect speaks, connect_function connect,
                                     std::string description)
    : speaks_{speaks},
      connect_{std::move(connect)},
      description_{std::move(description)},
      shared_{std::make_shared<shared>()} {
    if (!connect_) {
        throw error{errc::invalid_options, "a connection source needs a function that connects"};
    }
}

connection_source connection_source::with_tables(table_names names) const {
    validate_names(speaks_, names);
    connection_source named{speaks_, connect_, description_};
    named.tables_ = std::move(names);
    return named;
}

std::unique_ptr<connection> connection_source::connect(deadline until) const {
    auto made = connect_(until);
    if (!made) {
        throw error{errc::database_unreachable, "the connection source yielded no connection"};
    }
    if (made->speaks() != speaks_) {
        throw error{errc::invalid_options,
                    "the connection source yielded a connection of dialect " +
                        std::string{to_string(made->speaks())} + ", not " +
                        std::string{to_string(speaks_)}};
    }
    return made;
}

connection_source connection_source::wrapped(wrap_function around) const {
    if (!around) {
        throw error{errc::invalid_options, "a connection source is wrapped by a function"};
    }
    connection_source made{*this};
    auto bare = *this;
    bare.shared_.reset();  // what row sessions share belongs to the source itself
    made.connect_ = [inner = std::move(bare), around = std::move(around)](deadline until) {
        return around(inner.connect(until));
    };
    made.shared_ = std::make_shared<shared>();
    return made;
}

}  // namespace rowlock::sql
