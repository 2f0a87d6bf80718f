"""Humans who answer: requests that outlive the process that asked, and who may decide them.

`document` and `grants` hold the pure rules, `store` keeps the documents, `gateway` asks and waits,
`policy` says who is told when, `waiting` hears of answers, `notifiers` tell people, and `keys`
checks what they signed.
"""
