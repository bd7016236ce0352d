// SPDX-License-Identifier: Apache-2.0
// answer_page: one page of answers, over as many requests as it takes. A request that has to read
// the texts of answers looks at some thousand of them and says how many are left; a page that is
// not full then is no end.

/**
   The page of `limit` rows after the cursor `after`. ask(cursor, limit) makes one request;
   show(page) gets the page each time it has grown, with `isSearching` until it is full or nothing
   is left. `searched` and `left` count from the beginning of the page.
 */
export async function answerPage(ask, after, limit, show) {
  let data = [], searched = 0, cursor = after;
  for (;;) {
    const part = await ask(cursor, limit - data.length);
    data = [...data, ...part.data];
    searched += part.searched ?? 0;
    const isSearching = part.has_more && part.after != null && data.length < limit;
    const isWhole = !part.has_more && after == null; // the first page has all that match
    const page = {
      ...part,
      data,
      searched,
      isSearching,
      matched: part.matched ?? (isWhole ? data.length : null)
    };
    show(page);
    if (!isSearching) return page;
    cursor = part.after;
  }
}
