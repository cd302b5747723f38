#include "schema/script.hpp"

#include "sql/lexer.hpp"

namespace rowlock::schema {
namespace {

using sql::token_kind;

bool blank(char c) {
    return c != '\n' && sql::is_whitespace(c);
}

bool has_newline(const sql::token& one) {
    return one.text.find('\n') != std::string_view::npos;
}

/// Whether only blanks, comments and more semicolons follow on the line.
bool ends_the_line(sql::lexer rest) {
    while (const auto next = rest.next()) {
        const bool empty =
            next->kind == token_kind::whitespace || next->kind == token_kind::comment;
        if (empty && has_newline(*next)) return true;
        if (!empty && next->text != ";") return false;
    }
    return true;
}

void trim_line(std::string& text) {
    while (!text.empty() && blank(text.back())) text.pop_back();
}

/// Trims line by line while the text is built, to remove what a comment leaves behind: blanks at
/// the end of a line, empty lines. Lines within a literal are left alone.
void append_newline(std::string& text) {
    trim_line(text);
    if (!text.empty() && text.back() != '\n') text.push_back('\n');
}

void append_whitespace(std::string& text, std::string_view whitespace) {
    for (const char c : whitespace) {
        if (c == '\n') {
            append_newline(text);
        } else if (!text.empty()) {
            text.push_back(c);
        }
    }
}

void finish(std::string& statement, std::vector<std::string>& statements) {
    while (!statement.empty() && (blank(statement.back()) || statement.back() == '\n')) {
        statement.pop_back();
    }
    if (!statement.empty()) statements.push_back(std::move(statement));
    statement.clear();
}

}  // namespace

/// A comment behind two signs stays: with a blank in its place MySQL would take the signs for a
/// comment.
std::vector<std::string> split_statements(std::string_view script, sql::dialect which) {
    std::vector<std::string> statements;
    std::string statement;
    sql::lexer tokens{which, script};
    while (const auto next = tokens.next()) {
        if (next->kind == token_kind::whitespace) {
            append_whitespace(statement, next->text);
        } else if (next->kind == token_kind::comment && !statement.ends_with("--")) {
            append_whitespace(statement, " ");  // a comment separates words
        } else if (next->text == ";" && ends_the_line(tokens)) {
            finish(statement, statements);
        } else {
            statement.append(next->text);
        }
    }
    finish(statement, statements);
    return statements;
}

}  // namespace rowlock::schema
