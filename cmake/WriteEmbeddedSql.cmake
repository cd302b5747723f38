# Run by EmbedSql.cmake: writes OUTPUT from the FILES (separated by |) below ROOT.
string(REPLACE "|" ";" files "${FILES}")
set(body "")
foreach(path IN LISTS files)
    file(READ ${ROOT}/${path} text)
    string(APPEND body "    {\"${path}\", R\"~sql~(${text})~sql~\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Made from the .sql files by cmake/WriteEmbeddedSql.cmake.
#include \"base/embedded.hpp\"

namespace rowlock::embedded {
namespace {
constexpr file files[] = {
${body}};
}  // namespace

std::span<const file> ${NAME}() noexcept { return files; }

}  // namespace rowlock::embedded
")
