# Run by EmbedText.cmake: writes OUTPUT from the FILES (separated by |) below ROOT.
string(REPLACE "|" ";" files "${FILES}")
set(body "")
foreach(path IN LISTS files)
    file(READ ${ROOT}/${path} text)
    string(APPEND body "    {\"${path}\", R\"~text~(${text})~text~\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Made by cmake/WriteEmbeddedText.cmake.
#include \"base/embedded.hpp\"

namespace rowlock::embedded {
namespace {
constexpr file files[] = {
${body}};
}  // namespace

std::span<const file> ${NAME}() noexcept { return files; }

}  // namespace rowlock::embedded
")
