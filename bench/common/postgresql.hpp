#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

struct pg_conn;
struct pg_result;

namespace bench {

/// A connection of libpq with prepared statements and text parameters.
class postgresql_session {
public:
    struct close_connection {
        void operator()(pg_conn* connection) const;
    };
    struct clear_result {
        void operator()(pg_result* result) const;
    };
    using answer = std::unique_ptr<pg_result, clear_result>;

    explicit postgresql_session(const std::string& url);

    void prepare(const char* name, const char* text);
    answer run(const char* name, std::initializer_list<const char*> parameters);
    answer query(const std::string& text);
    /// The first cell of the result of `text`.
    [[nodiscard]] std::string text_of(const std::string& text);
    [[nodiscard]] std::int64_t integer_of(const std::string& text);
    /// Waits for a notification, at most a minute.
    void await_notification();

private:
    answer check(pg_result* result);
    [[noreturn]] void fail();

    std::unique_ptr<pg_conn, close_connection> connection_;
};

/// The number of rows changed, or read.
[[nodiscard]] std::int64_t rows_of(const postgresql_session::answer& result);

}  // namespace bench
