from incremental_assets.cli import main

main()
