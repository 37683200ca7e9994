#!/bin/sh
# docs.sh BIN: the site in build/site, without a network. A warning is an error.
set -e
export NO_MKDOCS_2_WARNING=1  # of the theme's authors, about their next product: decision 039
PYTHONPATH=tools "$1/mkdocs" build --strict --clean
for page in index.html api/nn.html performance.html search/search_index.js; do
    [ -s "build/site/$page" ] || { echo "build/site/$page is missing"; exit 1; }
done
if grep -rlE '<(script|img|iframe)[^>]* src="(https?:)?//|<link[^>]* href="(https?:)?//|@import url\(' build/site --include='*.html' --include='*.css'
then
    echo "these files of build/site ask another server for a script, a style or a font"
    exit 1
fi
echo "build/site: $(find build/site -name '*.html' | wc -l) pages"
